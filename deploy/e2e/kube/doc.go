// Package kube tests the server on a real kube-apiserver and etcd: that it sends what it would send from files, and what it does while the API server is
// away, slow or forgetful. It has no code of its own besides its tests, which run the server in their process.
package kube
