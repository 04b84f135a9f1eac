// Package capture tests `pilot-agent istio-iptables` in network namespaces: who is reached by whom, with REDIRECT and
// TPROXY, over IPv4 and IPv6, and where DNS queries go. In the place of Envoy there are plain sockets at its ports.
package capture
