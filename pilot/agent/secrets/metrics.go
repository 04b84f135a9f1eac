package secrets

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	fileFailures prometheus.Counter
}

func newMetrics() metrics {
	return metrics{
		fileFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_num_file_secret_failures_total", Help: "Secrets of files that could not be read, or not be written."}),
	}
}

func (m metrics) register(r prometheus.Registerer, of *Manager) error {
	if err := r.Register(m.fileFailures); err != nil {
		return err
	}
	return r.Register(expiries{of, prometheus.NewDesc("istio_agent_cert_expiry_seconds", "Seconds until a certificate ends; negative once it has.", []string{"resource_name"}, nil)})
}

// expiries says when the certificates end, counted when somebody asks.
type expiries struct {
	of   *Manager
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (e expiries) Describe(to chan<- *prometheus.Desc) { to <- e.desc }

// Collect implements prometheus.Collector.
func (e expiries) Collect(to chan<- prometheus.Metric) {
	e.of.mu.Lock()
	list := []*Secret{e.of.workload, e.of.rootCAs}
	for _, f := range e.of.files {
		if f.name != Workload && f.name != Roots {
			list = append(list, f.secret)
		}
	}
	e.of.mu.Unlock()
	now := e.of.now()
	for _, s := range list {
		if s != nil {
			to <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, s.Expires.Sub(now).Seconds(), s.Name)
		}
	}
}
