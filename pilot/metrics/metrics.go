package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
)

// NewRegistry returns the registry of all metrics, with the metrics of the process. panics is nil if panics are not
// counted.
func NewRegistry(version string, panics Panics, started time.Time) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	controllers.RegisterMetrics(reg)
	constant := func(name, help string, labels prometheus.Labels) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 }))
	}
	constant(
		"istio_build", "Always 1. The labels have the component and its version.", prometheus.Labels{"component": "pilot", "tag": version},
	)
	constant(
		"pilot_info", "Always 1. The label has the version of this server and of Go.",
		prometheus.Labels{"version": version + "-" + runtime.Version()},
	)
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "istiod_uptime_seconds", Help: "Seconds since the server started."},
		func() float64 { return time.Since(started).Seconds() }))
	reg.MustRegister(&panicCollector{
		panics, prometheus.NewDesc("istiod_panics_total", "Recovered panics, by the name of the part that panicked.", []string{"name"}, nil),
	})
	return reg
}

// Panics counts the panics that were recovered.
type Panics interface {
	// Panics returns the number of panics by the name of what panicked.
	Panics() map[string]uint64
}

// panicCollector exports the number of recovered panics.
type panicCollector struct {
	panics Panics
	desc   *prometheus.Desc
}

func (c *panicCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *panicCollector) Collect(ch chan<- prometheus.Metric) {
	if c.panics == nil {
		return
	}
	for name, n := range c.panics.Panics() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n), name)
	}
}

// Events registers the counters of changed objects and returns the function that increments them.
func Events(reg prometheus.Registerer) func(*kinds.Kind, string) {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"type", "event"})
		reg.MustRegister(c)
		return c
	}
	cfg := counter("pilot_k8s_cfg_events", "Changes of configuration objects, by kind and event.")
	services := counter("pilot_k8s_reg_events", "Changes of objects that services are made of, by kind and event.")
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

// CommitTime registers the histogram of the duration of commits.
func CommitTime(reg prometheus.Registerer) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "pilot_pushcontext_init_seconds", Help: "Seconds that committing a batch of changes takes.",
		Buckets:                     prometheus.ExponentialBuckets(0.0001, 4, 10),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	reg.MustRegister(h)
	return h
}

// Findings provides the findings of the server.
type Findings interface {
	SingleFindings() []diag.Diagnostic // about single objects
	ObjectFindings() []diag.Diagnostic // about objects, their references and their effect on proxies
}

// Register registers the metrics of the configuration, which are computed at each scrape.
func Register(reg prometheus.Registerer, w *ingest.World, findings Findings, t *translate.Translator) {
	reg.MustRegister(&findingsCollector{
		prometheus.NewDesc(
			"pilot_findings", "Findings about the configuration, as on the debug page findings, by severity and code.",
			[]string{"severity", "code"}, nil,
		),
		findings,
	})
	gauge := func(name, help string, value func(s *snapshot.Snapshot) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if s := w.Snapshot(); s != nil {
				return value(s)
			}
			return 0
		}))
	}
	gauge("pilot_services", "Services in the last snapshot.", func(s *snapshot.Snapshot) float64 { return float64(s.ServiceCount()) })
	gauge("pilot_virt_services", "VirtualServices in the last snapshot.", func(s *snapshot.Snapshot) float64 {
		return float64(s.ObjectCount(kinds.VirtualService))
	})
	const noEndpoints = "Service ports without an endpoint, of services "
	gauge("pilot_eds_no_instances", noEndpoints+"with client-side load balancing.", func(s *snapshot.Snapshot) float64 {
		return emptyPorts(s, func(svc *registry.Service) bool { return svc.Resolution == registry.ClientSide })
	})
	gauge("pilot_dns_cluster_without_endpoints", noEndpoints+"that Envoy resolves by DNS.", func(s *snapshot.Snapshot) float64 {
		return emptyPorts(s, func(svc *registry.Service) bool {
			return svc.Resolution.EndpointsInCluster()
		})
	})
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pilot_sds_certificate_errors_total", Help: "Versions of Secrets and ConfigMaps for TLS with an unusable part, since the start.",
	}, func() float64 { return float64(w.Counts().BadCredentials) }))
	gauge("pilot_no_ip", "Pods without an IP address.", func(*snapshot.Snapshot) float64 { return float64(w.Counts().WithoutIP) })
	gauge(
		"pilot_endpoint_not_ready", "Endpoints that are not ready.", func(*snapshot.Snapshot) float64 { return float64(w.Counts().NotReady) },
	)
	gauge("endpoint_no_pod", "Endpoints whose pod is unknown.", func(*snapshot.Snapshot) float64 { return float64(w.Counts().Pending) })
	gauge("pilot_k8s_endpoints_pending_pod", "Endpoints that wait until their pod is known.", func(*snapshot.Snapshot) float64 {
		return float64(w.Counts().Pending)
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pilot_total_rejected_configs", Help: "Findings with severity error about single configuration objects.",
	},
		func() float64 {
			n := 0
			for _, d := range findings.SingleFindings() {
				if d.Severity == diag.Error {
					n++
				}
			}
			return float64(n)
		}))
	gauge("pilot_k8s_endpoints_with_no_pods", "Endpoints of Kubernetes services without a known pod.", func(s *snapshot.Snapshot) float64 {
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
		reads: prometheus.NewDesc(
			"xds_cache_reads", "Look-ups in the cache of encoded resources, by result: hit or miss.", []string{"type"}, nil,
		),
		translator: t,
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "xds_cache_size", Help: "Encoded resources in the cache.",
	}, func() float64 {
		n, _ := t.Size()
		return float64(n)
	}))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "xds_cache_evictions",
		Help: "Encoded resources that the cache dropped because of their age or for newer ones. Resources in use stay.",
	}, func() float64 {
		_, n := t.Size()
		return float64(n)
	}))
	for _, p := range translate.Conflicts() {
		gauge(string(p), conflictHelp(string(p)), func(*snapshot.Snapshot) float64 { return float64(t.Count(p)) })
	}
}

// conflictHelp returns the help text of the gauge of a kind of conflict, by its name.
func conflictHelp(name string) string {
	const dashboards = " It exists for Istio's dashboards."
	switch name {
	case "pilot_conflict_outbound_listener_tcp_over_current_tcp":
		return "Outbound listeners whose services conflict on one address and port, as of the last push."
	case "pilot_conflict_inbound_listener":
		return "Target ports that services use with different protocols, as of the last push."
	case "pilot_vservice_dup_domain":
		return "Domains that several virtual hosts of a route configuration claim, as of the last push."
	case "pilot_destrule_subsets":
		return "Always 0: subsets that several DestinationRules define are not counted." + dashboards
	case "pilot_duplicate_envoy_clusters":
		return "Always 0: the clusters of a proxy have distinct names." + dashboards
	}
	return "Conflicts of the kind " + name + " in the configuration of proxies, as of the last push."
}

// findingsCollector exports the number of findings by severity and code. The program defines the codes, so their number
// is bounded.
type findingsCollector struct {
	desc     *prometheus.Desc
	findings Findings
}

func (c *findingsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *findingsCollector) Collect(ch chan<- prometheus.Metric) {
	type kind struct{ severity, code string }
	counts := map[kind]int{}
	for _, s := range []diag.Severity{diag.Error, diag.Warning, diag.Info} { // export 0 for a severity without findings
		counts[kind{s.String(), ""}] = 0
	}
	for _, d := range c.findings.ObjectFindings() {
		counts[kind{d.Severity.String(), d.Code}]++
	}
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), k.severity, k.code)
	}
}

// emptyPorts returns the number of ports without endpoints of the services that match.
func emptyPorts(s *snapshot.Snapshot, match func(*registry.Service) bool) float64 {
	n := 0
	for _, svc := range s.Services() {
		if !match(svc) {
			continue
		}
		with := lists.SetOf(s.Endpoints(svc.Key()).List, func(e *registry.Endpoint) string { return e.ServicePort })
		for _, p := range svc.Ports {
			if p.Protocol != protocols.UDP && !with[p.Name] {
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
