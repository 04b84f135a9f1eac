package mcp

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// found makes known that something is wrong with the server, until it has answered for everything.
func (s *Source) found(message, fix string) {
	s.trouble = &diag.Diagnostic{Severity: diag.Error, Code: "ConfigSource", Message: message, Fix: fix}
	s.report()
}

// report makes the findings known if they have changed, logs what is new and what is gone, and counts.
func (s *Source) report() {
	list := slices.Clone(s.warnings)
	if s.trouble != nil {
		list = append(list, *s.trouble)
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

// metrics are those of one source, with the label source.
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
	responses := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilot_mcp_responses", Help: "Responses of a config source."}, []string{"result"})
	reg.MustRegister(responses)
	return &metrics{
		connected: gauge("pilot_mcp_connected", "1 while a stream to a config source is open that has answered for every kind."),
		objects:   gauge("pilot_mcp_objects", "Objects of a config source that are in force."),
		unusable:  gauge("pilot_mcp_unusable_objects", "Objects of a config source that cannot be used as they are."),
		streams:   counter("pilot_mcp_streams", "Streams opened to a config source."),
		accepted:  responses.WithLabelValues("accepted"),
		rejected:  responses.WithLabelValues("rejected"),
		emptied:   counter("pilot_mcp_emptied_kinds", "How often a kind was empty on a new stream to a config source that had objects of it before."),
	}
}
