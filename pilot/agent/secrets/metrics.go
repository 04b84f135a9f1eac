package secrets

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	fileFailures prometheus.Counter
}

func newMetrics() metrics {
	return metrics{
		fileFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "istio_agent_num_file_secret_failures_total",
			Help: "Secrets whose files could not be read or written.",
		}),
	}
}

func (m metrics) register(r prometheus.Registerer, manager *Manager) error {
	if err := r.Register(m.fileFailures); err != nil {
		return err
	}
	return r.Register(expiries{manager, prometheus.NewDesc(
		"istio_agent_cert_expiry_seconds", "Seconds until a certificate expires; negative afterwards.", []string{"resource_name"}, nil)})
}

// expiries collects the remaining lifetimes of the certificates.
type expiries struct {
	manager *Manager
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (e expiries) Describe(ch chan<- *prometheus.Desc) { ch <- e.desc }

// Collect implements prometheus.Collector.
func (e expiries) Collect(ch chan<- prometheus.Metric) {
	e.manager.mu.Lock()
	list := []*Secret{e.manager.workload, e.manager.rootsSecret}
	for _, f := range e.manager.files {
		if f.name != Workload && f.name != Roots {
			list = append(list, f.secret)
		}
	}
	e.manager.mu.Unlock()
	now := e.manager.now()
	for _, s := range list {
		if s != nil {
			ch <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, s.Expires.Sub(now).Seconds(), s.Name)
		}
	}
}
