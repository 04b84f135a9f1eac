// Package capture tests `pilot-agent istio-iptables` in network namespaces: which connections reach which process, with
// REDIRECT and TPROXY, over IPv4 and IPv6, and where DNS queries go. Plain sockets at Envoy's ports stand for Envoy.
package capture
