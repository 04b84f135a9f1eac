// Package boards asks what dashboards and alerts ask, of scrapes of a control plane that works, in Prometheus's own
// query engine.
//
// The queries are those of Istio's dashboards for the control plane, by the names and labels that they use
// (testdata/istio.txt), those of the chart's dashboard, and those of its alerts. With the tag compat the JSON of
// Istio's dashboards themselves is read, from its module, and deploy/compat/MATRIX.md is written. What other programs
// answer to, such as cAdvisor, is scraped from a text in testdata.
package boards
