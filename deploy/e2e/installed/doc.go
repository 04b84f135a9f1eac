// Package installed provides clusters for tests: with the custom resources alone, or with the charts installed, and
// then servers as the chart's Deployment would start them. Where Main runs the tests, they share clusters one after the
// other: a cluster is emptied for the next test, which costs far less than a start. A Peer is a control plane to
// compare, Istio's or this project's. A World and a Peer belong to one test, and end with it.
package installed
