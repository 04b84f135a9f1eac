// Package charts runs Helm on the charts of this tree, for their tests: the ones here (what the templates make of
// values) and those on a real API server.
//
// The programs are those that HELM4 and KUBECONFORM name, else those that make has put into .tools; Helm 3 takes part
// where HELM3 names one, as it does in `make compat-helm`. Nothing of the user's own Helm or cluster is read.
package charts
