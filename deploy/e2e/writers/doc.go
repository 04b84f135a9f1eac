// Package writers tests, on a real kube-apiserver and etcd, what writes to one: the registration of workloads and the
// election of a leader, each with no more rights than it needs. It has no code of its own besides its tests; a leader
// that is stopped and resumed is a process of its own, this package's test binary.
package writers
