// Command bench runs istiod-lite beside the real istiod: each in turn on one core, with the same API server, the same mesh and the same simulated Envoys on the
// others. It writes medians, spreads and ratios into RESULTS.md, a section for each workload, and leaves the sections of other workloads as they were.
//
//	go run ./deploy/bench -w W1,W3 -services 1000 -proxies 300
//
// The real istiod comes from the environment variable ISTIOD, else it is built once into .tools from its Go module. istiod-lite is built from this tree unless
// PILOT_DISCOVERY names a binary. etcd and kube-apiserver are found as package cluster finds them.
//
// One goroutine runs all; others wait for processes. It leaves nothing behind but the results and, where something failed, the folder with the logs.
package main
