// Package health probes the health of an application as Kubernetes does: by an HTTP or HTTPS request, a TCP connection,
// a gRPC health check, or a command.
//
// A Probe is one check. A Checker repeats it as the readinessProbe of a ProxyConfig says, and reports each change. That
// takes an unhealthy application on a virtual machine, where there is no kubelet, out of load balancing. Package
// pilot/agent/status makes Probes for the kubelet.
//
// A Checker runs in the goroutine that calls Run, and owns no resources.
//
// # Guarantees
//
//   - The health of an application is reported when it is known and when it changes: [TestReports], [TestThresholds].
//     A probe ends within its timeout, and follows redirects as a kubelet does: [TestTimeouts], [TestHTTP],
//     [TestOthers].
package health
