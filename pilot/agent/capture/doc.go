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
//
// # Guarantees
//
//   - The rules lead incoming and outgoing traffic to Envoy, with REDIRECT and TPROXY, over IPv4 and IPv6, except for
//     what is excluded and what is Envoy's. Writing them again changes nothing, and removing them leaves nothing:
//     [deploy/e2e/capture.TestRedirect], [deploy/e2e/capture.TestTProxy], [deploy/e2e/capture.TestIPv6]. With TPROXY
//     no connection bypasses an Envoy that does not listen: [deploy/e2e/capture.TestTProxy].
//   - DNS queries of the application reach the agent, and those of the agent do not, even from the same port:
//     [deploy/e2e/capture.TestDNS].
//   - The rules that the arguments of injected pods make are reviewed as text; a wrong argument is named:
//     [TestScripts], [TestWrongArguments].
package capture
