package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
)

// NewRegistry makes the registry of all metrics, with the metrics of the process. panics returns the recovered panics
// by name; nil if they are not counted.
func NewRegistry(version string, panics func() map[string]uint64, started time.Time) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	controllers.RegisterMetrics(reg)
	constant := func(name, help string, labels prometheus.Labels) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 }))
	}
	constant("istio_build", "The build of this component.", prometheus.Labels{"component": "pilot", "tag": version})
	constant("pilot_info", "The version of this server and its build.", prometheus.Labels{"version": version + "-" + runtime.Version()})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "istiod_uptime_seconds", Help: "Seconds since the server started."},
		func() float64 { return time.Since(started).Seconds() }))
	reg.MustRegister(&panicCollector{panics, prometheus.NewDesc("istiod_panics_total", "Panics that were recovered, by what panicked.", []string{"name"}, nil)})
	return reg
}

// panicCollector shows the panics that the log has counted.
type panicCollector struct {
	counts func() map[string]uint64
	desc   *prometheus.Desc
}

func (c *panicCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *panicCollector) Collect(ch chan<- prometheus.Metric) {
	if c.counts == nil {
		return
	}
	for name, n := range c.counts() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n), name)
	}
}

// Events returns the function that counts changes: of services and of what they are made of, and of configuration.
func Events(reg prometheus.Registerer) func(*kinds.Kind, string) {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"type", "event"})
		reg.MustRegister(c)
		return c
	}
	cfg := counter("pilot_k8s_cfg_events", "Changes of configuration objects.")
	services := counter("pilot_k8s_reg_events", "Changes of objects that services are made of.")
	return func(k *kinds.Kind, event string) {
		switch k {
		case kinds.Service:
			services.WithLabelValues("Services", event).Inc()
		case kinds.Pod:
			services.WithLabelValues("Pods", event).Inc()
		case kinds.Node:
			services.WithLabelValues("Nodes", event).Inc()
		case kinds.Namespace, kinds.EndpointSlice, kinds.Secret, kinds.ConfigMap:
			services.WithLabelValues(k.Name, event).Inc()
		default:
			cfg.WithLabelValues(k.Name, event).Inc()
		}
	}
}

// CommitTime makes the histogram of how long it takes to make a snapshot.
func CommitTime(reg prometheus.Registerer) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "pilot_pushcontext_init_seconds", Help: "Seconds that it took to make a snapshot of changes.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	reg.MustRegister(h)
	return h
}

// Findings are what is wrong.
type Findings interface {
	SingleFindings() []diag.Diagnostic // with single objects
	ObjectFindings() []diag.Diagnostic // with objects, between them, and with what they do to proxies
}

// Register shows the state of the world, which is read at each scrape.
func Register(reg prometheus.Registerer, w *ingest.World, findings Findings, t *translate.Translator) {
	reg.MustRegister(&findingsCollector{
		prometheus.NewDesc("pilot_findings", "What is wrong with configuration, as the debug page findings shows it.", []string{"severity", "code"}, nil), findings,
	})
	gauge := func(name, help string, value func(s *snapshot.Snapshot) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if s := w.Snapshot(); s != nil {
				return value(s)
			}
			return 0
		}))
	}
	gauge("pilot_services", "Services known.", func(s *snapshot.Snapshot) float64 { return float64(s.ServiceCount()) })
	gauge("pilot_virt_services", "VirtualServices known.", func(s *snapshot.Snapshot) float64 {
		return float64(s.ObjectCount(kinds.VirtualService))
	})
	gauge("pilot_eds_no_instances", "Ports of services that have no endpoint.", func(s *snapshot.Snapshot) float64 {
		return emptyPorts(s, func(svc *registry.Service) bool { return svc.Resolution == registry.ClientSide })
	})
	gauge("pilot_dns_cluster_without_endpoints", "Ports of services by DNS that have no endpoint.", func(s *snapshot.Snapshot) float64 {
		return emptyPorts(s, func(svc *registry.Service) bool {
			return svc.Resolution.EndpointsInCluster()
		})
	})
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pilot_sds_certificate_errors_total", Help: "Secrets and ConfigMaps that were read for TLS, with a part that could not be used.",
	}, func() float64 { return float64(w.Counts().BadCredentials) }))
	gauge("pilot_no_ip", "Pods without an address.", func(*snapshot.Snapshot) float64 { return float64(w.Counts().WithoutIP) })
	gauge("pilot_endpoint_not_ready", "Endpoints that are not ready.", func(*snapshot.Snapshot) float64 { return float64(w.Counts().NotReady) })
	gauge("endpoint_no_pod", "Endpoints that name a pod which is not known.", func(*snapshot.Snapshot) float64 { return float64(w.Counts().Pending) })
	gauge("pilot_k8s_endpoints_pending_pod", "Endpoints whose pod is not known yet.", func(*snapshot.Snapshot) float64 {
		return float64(w.Counts().Pending)
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pilot_total_rejected_configs", Help: "Configuration that is not used because it is wrong."},
		func() float64 {
			n := 0
			for _, d := range findings.SingleFindings() {
				if d.Severity == diag.Error {
					n++
				}
			}
			return float64(n)
		}))
	gauge("pilot_k8s_endpoints_with_no_pods", "Endpoints of Kubernetes services behind which no pod is known.", func(s *snapshot.Snapshot) float64 {
		n := 0
		for _, svc := range s.Services() {
			for _, e := range s.Endpoints(svc.Key()).List {
				if svc.Provider == registry.Kubernetes && e.Workload == "" {
					n++
				}
			}
		}
		return float64(n)
	})
	reg.MustRegister(&memoCollector{
		reads: prometheus.NewDesc("xds_cache_reads", "Looks into the memo of encoded resources.", []string{"type"}, nil), translator: t,
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "xds_cache_size", Help: "Encoded resources in the memo."}, func() float64 {
		n, _ := t.Size()
		return float64(n)
	}))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "xds_cache_evictions", Help: "Encoded resources that the memo holds no longer by itself, for newer ones or by age; those in use stay.",
	}, func() float64 {
		_, n := t.Size()
		return float64(n)
	}))
	for _, p := range translate.Conflicts() {
		gauge(string(p), "Configuration that is not sent as it was meant, in the last push.", func(*snapshot.Snapshot) float64 { return float64(t.Count(p)) })
	}
}

// findingsCollector counts what is wrong, by severity and code. The codes are the program's own, so their number is
// bounded.
type findingsCollector struct {
	desc     *prometheus.Desc
	findings Findings
}

func (c *findingsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *findingsCollector) Collect(ch chan<- prometheus.Metric) {
	type kind struct{ severity, code string }
	counts := map[kind]int{}
	for _, s := range []diag.Severity{diag.Error, diag.Warning, diag.Info} { // a severity without findings is a zero
		counts[kind{s.String(), ""}] = 0
	}
	for _, d := range c.findings.ObjectFindings() {
		counts[kind{d.Severity.String(), d.Code}]++
	}
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), k.severity, k.code)
	}
}

// emptyPorts counts the ports without endpoints of the services that match.
func emptyPorts(s *snapshot.Snapshot, match func(*registry.Service) bool) float64 {
	n := 0
	for _, svc := range s.Services() {
		if !match(svc) {
			continue
		}
		with := lists.SetOf(s.Endpoints(svc.Key()).List, func(e *registry.Endpoint) string { return e.ServicePort })
		for _, p := range svc.Ports {
			if p.Protocol != registry.UDP && !with[p.Name] {
				n++
			}
		}
	}
	return float64(n)
}

type memoCollector struct {
	reads      *prometheus.Desc
	translator *translate.Translator
}

func (c *memoCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.reads }

func (c *memoCollector) Collect(ch chan<- prometheus.Metric) {
	hits, misses := c.translator.Stats()
	ch <- prometheus.MustNewConstMetric(c.reads, prometheus.CounterValue, float64(hits), "hit")
	ch <- prometheus.MustNewConstMetric(c.reads, prometheus.CounterValue, float64(misses), "miss")
}
