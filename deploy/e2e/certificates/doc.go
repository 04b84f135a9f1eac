// Package certificates tests, on a real kube-apiserver and etcd, how workloads of a cluster get their certificates: by
// tokens of their service accounts, from the server that the chart installs, with the rights that the chart gives it.
// It has no code of its own besides its tests.
package certificates
