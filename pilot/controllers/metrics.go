package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// RegisterMetrics registers the metrics of controller-runtime, which cover all Managers of the process, except its
// metrics of Go and of the process, which the registry has already.
func RegisterMetrics(r prometheus.Registerer) {
	metrics.Registry.Unregister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	metrics.Registry.Unregister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(metrics.Registry.(prometheus.Collector))
}
