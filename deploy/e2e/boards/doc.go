// Package boards evaluates the queries of dashboards and alerts on scrapes of a working control plane, in Prometheus's
// own query engine.
//
// The queries are those of Istio's dashboards for the control plane, by the names and labels that they use
// (testdata/istio.txt), of the chart's dashboard, and of its alerts. With the tag compat, the tests read the JSON of
// Istio's dashboards from its module, and write deploy/compat/MATRIX.md. Metrics of other programs, such as cAdvisor,
// are scraped from a text in testdata.
package boards
