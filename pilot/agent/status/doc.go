// Package status serves port 15020 of a pod: whether the proxy is ready, what agent, Envoy and application measure, and
// the probes and hooks of the application, which a kubelet cannot reach where mTLS is required.
//
//	/healthz/ready                        200 or 503, with the reason
//	/stats/prometheus, /metrics           metrics of Envoy, agent and application, merged
//	/app-health/CONTAINER/{livez,readyz,startupz}, /app-lifecycle/CONTAINER/{prestopz,poststartz}
//	/quitquitquit, /drain                 POST, from this pod only
//	/debug/ndsz, /debug/pprof/            GET, from this pod only
//
// A proxy that was ready stays ready until it drains: an Envoy that is slow to answer is not a reason to take a pod out
// of service.
//
// Server owns its listener and its state. Each request runs in a goroutine of the HTTP server.
package status
