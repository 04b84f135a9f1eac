package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// RegisterMetrics adds the metrics of controller-runtime to a registry, with its usual names. They are those of all
// Managers of the process. The registry has the metrics of Go and of the process already.
func RegisterMetrics(r prometheus.Registerer) {
	metrics.Registry.Unregister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	metrics.Registry.Unregister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(metrics.Registry.(prometheus.Collector))
}
