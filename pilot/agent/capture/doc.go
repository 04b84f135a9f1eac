// Package capture redirects the traffic of a pod to its Envoy, with the rules that `pilot-agent istio-iptables` writes:
// inbound and outbound TCP connections, and DNS queries.
//
// The rules are one nftables table for each IP family, which this package writes through netlink. So the image needs no
// other program, and the change of all rules is atomic. Writing the rules again replaces them. TPROXY also needs a
// routing rule and a route.
//
// Envoy's own connections are identified by user, group or mark. They are exempt, except connections to Envoy's own
// pod, which are inbound like those of other clients.
//
// Command parses its arguments into a Config, whose method Rules makes the rules. Only Apply and Remove change the
// network namespace of the calling thread, and need CAP_NET_ADMIN in it.
//
// # Guarantees
//
//   - The rules lead incoming and outgoing traffic to Envoy, with REDIRECT and TPROXY, over IPv4 and IPv6, except for
//     what is excluded and what is Envoy's. Writing them again changes nothing, and removing them leaves nothing:
//     [deploy/e2e/capture.TestRedirect], [deploy/e2e/capture.TestTProxy], [deploy/e2e/capture.TestIPv6]. With TPROXY no
//     connection bypasses an Envoy that does not listen: [deploy/e2e/capture.TestTProxy].
//   - DNS queries of the application reach the agent, and those of the agent do not, even from the same port:
//     [deploy/e2e/capture.TestDNS].
//   - The rules that the arguments of injected pods make, and the variables of Istio's script for virtual machines, are
//     reviewed as text; a wrong argument or variable is named: [TestScripts], [TestWrongArguments].
package capture
