package mcp

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// setServerError adds a finding about the server. It stays until the server has answered for every kind.
func (s *Source) setServerError(message, fix string) {
	s.serverError = &diag.Diagnostic{Severity: diag.Error, Code: "ConfigSource", Message: message, Fix: fix}
	s.report()
}

// report publishes the findings and updates the metrics.
func (s *Source) report() {
	list := slices.Clone(s.warnings)
	if s.serverError != nil {
		list = append(list, *s.serverError)
	}
	objects, unusable := 0, 0
	for _, w := range s.types {
		list = append(list, w.findings...)
		for _, e := range w.entries {
			list = append(list, e.findings...)
			if e.Good != nil {
				objects++
			}
			if slices.ContainsFunc(e.findings, func(d diag.Diagnostic) bool { return d.Severity == diag.Error }) {
				unusable++
			}
		}
	}
	s.metrics.objects.Set(float64(objects))
	s.metrics.unusable.Set(float64(unusable))
	for i := range list {
		list[i].File = Scheme + s.opts.Address
	}
	s.findings.Set(list, config.ByObject, s.opts.Logger)
}

// metrics are the metrics of one source, with the label source.
type metrics struct {
	connected, objects, unusable         prometheus.Gauge
	streams, accepted, rejected, emptied prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, source string) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"source": source}, reg)
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	responses := prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "pilot_mcp_responses", Help: "Responses of a config source, by result: accepted or rejected."},
		[]string{"result"},
	)
	reg.MustRegister(responses)
	return &metrics{
		connected: gauge("pilot_mcp_connected", "1 if a stream to a config source is open and has answered for every kind, and 0 otherwise."),
		objects:   gauge("pilot_mcp_objects", "Objects of a config source that are in force."),
		unusable:  gauge("pilot_mcp_unusable_objects", "Objects of a config source that have errors."),
		streams:   counter("pilot_mcp_streams", "Streams opened to a config source."),
		accepted:  responses.WithLabelValues("accepted"),
		rejected:  responses.WithLabelValues("rejected"),
		emptied: counter(
			"pilot_mcp_emptied_kinds", "Responses on a new stream to a config source without objects of a kind that had objects before.",
		),
	}
}
