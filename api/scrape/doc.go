// Package scrape defines how agents find the metrics of an application: the injector passes the annotations of a Pod to
// its agent in the variable ISTIO_PROMETHEUS_ANNOTATIONS.
//
// # Guarantees
//
//   - A port of an annotation is a port, or is refused: [TestParsePort].
package scrape
