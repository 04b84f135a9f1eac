// Package health finds out whether an application is well, by the probes that Kubernetes knows: an HTTP or HTTPS
// request, a TCP connection, a gRPC health check, or a command.
//
// A Probe is one question. A Checker asks it time and again, as the readinessProbe of a ProxyConfig says, and reports
// each change: that is how an application on a virtual machine, which no kubelet watches, is taken out of load
// balancing. The package pilot/agent/status asks Probes for the kubelet.
//
// A Checker runs in the goroutine that calls Run. It owns nothing.
//
// # Guarantees
//
//   - The health of an application is reported when it is known and when it changes: [TestReports], [TestThresholds].
//     A probe ends within its timeout, and follows redirects as a kubelet does: [TestTimeouts], [TestHTTP],
//     [TestOthers].
package health
