// Package installed provides clusters for tests: with only the custom resources, or with the charts installed, and
// servers started as the chart's Deployment would. Tests under Main share clusters, one after the other. A cluster is
// emptied for the next test, which costs far less than a start. A Peer is a control plane for comparison, Istio's or
// this project's. A World and a Peer belong to one test, and end with it.
package installed
