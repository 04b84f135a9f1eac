// Package status serves port 15020 of a pod: the readiness of the proxy, the metrics of agent, Envoy and application,
// and the probes and hooks of the application, which a kubelet cannot reach if mTLS is required.
//
//	/healthz/ready                        200 or 503, with the reason
//	/stats/prometheus, /metrics           metrics of Envoy, agent and application, merged
//	/app-health/CONTAINER/{livez,readyz,startupz}, /app-lifecycle/CONTAINER/{prestopz,poststartz}
//	/quitquitquit, /drain                 POST, from this pod only
//	/debug/ndsz, /debug/pprof/            GET, from this pod only
//
// A proxy that was ready stays ready until it drains: a slow Envoy is no reason to remove a pod from load balancing.
//
// A Server owns its listener and its state. Each request runs in a goroutine of the HTTP server.
//
// # Guarantees
//
//   - A proxy is ready when Envoy has its configuration and its workers, and DNS its names. Afterwards only draining
//     ends that: [TestReadiness], [TestReadinessWithoutEnvoy].
//   - A source of metrics that fails, hangs or sends nonsense leaves the other sources, and no half line:
//     [TestMergedMetrics], [TestHangingSource], [TestToText], [TestCompressed]. Bad annotations leave out the metrics
//     that they name, and the agent runs: [TestScrapeTargets].
//   - Metrics for the pod alone are refused to others: [TestLocalMetrics], [pilot/agent/bootstrap.TestLocalMetrics].
//   - Probes reach the application from 127.0.0.6, with the headers of the kubelet and those of the probe:
//     [TestProbes].
//   - Requests that stop the agent or show its state are served to its own pod alone, and to no web page:
//     [TestOnlyFromThisPod], [TestNoOtherOrigin]. A client that does not read, or that opens connection after
//     connection, takes nothing from others: [TestSlowClient], [deploy/e2e/pilotagent.TestAgents/Crowd].
package status
