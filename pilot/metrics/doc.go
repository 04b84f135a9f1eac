// Package metrics shows the state of the server as metrics: the process, the world, the translator and what is wrong. A
// package whose metrics count what it does registers them by itself.
//
// State: none; each metric is read at a scrape.
//
// # Guarantees
//
//   - A scrape in Prometheus's protobuf format has native histograms beside the classic buckets:
//     [deploy/e2e/pages.TestNativeHistograms].
package metrics
