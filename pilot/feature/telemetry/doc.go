// Package telemetry is the feature of access logs, metrics and traces: of Telemetry objects, and of the mesh
// configuration's default providers and own fields.
//
//   - select.go: the objects of the mesh, of the namespace and of the workload that apply, with their providers.
//   - logging.go, accesslog.go, format.go: what is logged; the access logs of providers; the default formats.
//   - tracing.go, tracer.go: the tracing of connection managers; the tracers of providers.
//   - metrics.go, plugin.go: what is recorded; the configuration of istio.stats, a filter of Istio's builds of Envoy
//     alone.
//
// Each of them has separate settings for calls of the workload and for calls to it. A gateway is a client. A provider
// whose service proxies do not see is left out, which loses only spans or log lines. The package is pure.
//
// # Guarantees
//
//   - Access logs, traces and metrics of every listener are those of the real istiod, for objects of every level and
//     every sort of provider: [TestIstiod], [TestGoldens], [pilot/translate.TestReference].
//   - Envoys accept every log format that validation accepts: [TestEnvoysTakeFormats].
//   - Real Envoys log to files and collectors in the configured format, apply filters, and send spans with the
//     configured tags at the configured rate: [deploy/e2e/traffic.TestAccessLogs], [deploy/e2e/traffic.TestTraces].
//   - An edit for one namespace sends nothing to other namespaces: [deploy/e2e/traffic.TestEditReachesItsNamespace].
package telemetry
