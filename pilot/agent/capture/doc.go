// Package capture leads the traffic of a pod to its Envoy, by the rules that `pilot-agent istio-iptables` writes: the
// TCP connections that come in, those that go out, and DNS queries.
//
// The rules are one nftables table for each IP family, which this package writes by netlink: the image needs no other
// program, and all rules change in one transaction. Writing them again replaces them. TPROXY needs a routing rule and
// a route too.
//
// Envoy's own connections are known by user, group or mark. They are left alone, with one exception: what Envoy sends
// to its own pod comes in like what others send.
//
// Parse makes a Config of the arguments. Rules makes rules of a Config; both are pure. Apply and Remove change the
// network namespace of the calling thread, and need CAP_NET_ADMIN there.
package capture
