// Package kube tests the server on a real kube-apiserver and etcd: that it sends what it would send from files, and
// what it does while the API server is away, frozen, slow, forgetful or unwilling. It has no code of its own besides
// its tests. Those of outages run the server as a process, as the chart's Deployment would, with the rights of the
// chart's ServiceAccount, and hold two proxies' streams meanwhile, which notice whatever is taken away from them.
// Beside these it tests what the server writes there: statuses, and what Gateways need.
package kube
