// Command pilot-discovery is the control plane: `discovery` serves it; `validate`, `analyze` and `translate` run the
// same code once, over a directory or a cluster; `inject` adds proxies to a manifest; `bootstrap` prints what an Envoy
// needs to connect to one; `request` and `proxy-status` ask a running one; `load` connects simulated proxies to one;
// `token` makes tokens for one without Kubernetes; `version` prints its own version.
//
// Flags in, Options out, the tables that commands print, and the pace and the limit of Go's memory (garbage.go,
// memory.go); nothing else. This is the only place that reads the environment: for defaults of flags, to switch off
// what is on, and to find the cluster that it runs in. The one exception is the proxy before an API server, which
// pilot/config/crd takes from there.
package main
