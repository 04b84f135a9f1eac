package dns

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of a Server, with the names that Istio's dashboards use.
type metrics struct {
	requests, forwarded, failures prometheus.Counter
	duration                      prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_dns_" + name, Help: help})
	}
	m := &metrics{
		requests:  counter("requests_total", "DNS queries of applications."),
		forwarded: counter("upstream_requests_total", "DNS queries that were forwarded to other servers."),
		failures:  counter("upstream_failures_total", "DNS queries that no server answered."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "istio_agent_dns_upstream_request_duration_seconds",
			Help:    "Seconds until another server answered a forwarded query.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10},
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.forwarded, m.failures, m.duration} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("failed to register the metrics of the DNS proxy: %w", err)
		}
	}
	return m, nil
}
