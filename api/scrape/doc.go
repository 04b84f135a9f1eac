// Package scrape says where the metrics of an application are: the annotations of a Pod, as the injector hands them to
// the agent of the Pod in the variable ISTIO_PROMETHEUS_ANNOTATIONS.
//
// # Guarantees
//
//   - A port of an annotation is a port, or is refused: [TestParsePort].
package scrape
