package telemetry

import (
	"maps"
	"slices"
	"time"

	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// metricNames maps the names of metrics in objects to those in proxies.
var metricNames = map[string]string{
	"GRPC_REQUEST_MESSAGES":  "request_messages_total",
	"GRPC_RESPONSE_MESSAGES": "response_messages_total",
	"REQUEST_COUNT":          "requests_total",
	"REQUEST_DURATION":       "request_duration_milliseconds",
	"REQUEST_SIZE":           "request_bytes",
	"RESPONSE_SIZE":          "response_bytes",
	"TCP_CLOSED_CONNECTIONS": "tcp_connections_closed_total",
	"TCP_OPENED_CONNECTIONS": "tcp_connections_opened_total",
	"TCP_RECEIVED_BYTES":     "tcp_received_bytes_total",
	"TCP_SENT_BYTES":         "tcp_sent_bytes_total",
}

// metricsOf returns what is recorded for Prometheus on a side, and false if nothing is. A level that names providers
// replaces those of the previous levels. Overrides are applied in order. If the last one disables all metrics, none is
// recorded.
func metricsOf(m *mesh.Config, s feature.Selection, on side) (plugin, bool) {
	scope := m.GetDefaultProviders().GetMetrics()
	last := scope // providers named last
	all := map[string]*overrides{}
	for o := range s.Objects.All {
		var named []string
		for _, e := range spec(o).GetMetrics() {
			names := providerNames(e.Providers)
			named = append(named, names...)
			if len(names) > 0 {
				last = names
			}
			for _, p := range last {
				if all[p] == nil {
					all[p] = &overrides{metrics: map[string]*override{}}
				}
				all[p].add(e, on)
			}
		}
		if len(named) > 0 {
			scope = named
		}
	}
	for _, name := range slices.Sorted(slices.Values(scope)) {
		if m.Provider(name).GetPrometheus() == nil {
			continue
		}
		if all[name] == nil {
			return plugin{}, true
		}
		return all[name].plugin()
	}
	return plugin{}, false
}

// overrides are the overrides for one provider.
type overrides struct {
	disabled bool // whether the last override of all metrics disables them
	metrics  map[string]*override
	interval time.Duration
}

// override is what changes for one metric.
type override struct {
	disabled bool
	tags     map[string]*telemetryv1.MetricsOverrides_TagOverride
}

// add applies the overrides of an entry.
func (o *overrides) add(e *telemetryv1.Metrics, on side) {
	if e.ReportingInterval != nil {
		o.interval = e.ReportingInterval.AsDuration()
	}
	for _, x := range e.Overrides {
		if !covers(x.GetMatch().GetMode(), on) {
			continue
		}
		names := []string{x.GetMatch().GetCustomMetric()}
		if names[0] == "" {
			names[0] = x.GetMatch().GetMetric().String()
		}
		all := names[0] == telemetryv1.MetricSelector_ALL_METRICS.String()
		if o.disabled = all && x.GetDisabled().GetValue(); o.disabled {
			continue
		}
		if all {
			if len(x.TagOverrides) == 0 {
				continue
			}
			names = slices.Collect(maps.Keys(metricNames))
		} else if x.Disabled != nil {
			o.metric(names[0]).disabled = x.Disabled.Value
		}
		for _, name := range names {
			maps.Copy(o.metric(name).tags, x.TagOverrides)
		}
	}
}

// metric returns the override of a metric, and creates it if there is none.
func (o *overrides) metric(name string) *override {
	if o.metrics[name] == nil {
		o.metrics[name] = &override{tags: map[string]*telemetryv1.MetricsOverrides_TagOverride{}}
	}
	return o.metrics[name]
}

// plugin returns the configuration of istio.stats, and false if no metric is left.
func (o *overrides) plugin() (plugin, bool) {
	p := plugin{interval: o.interval}
	for _, name := range slices.Sorted(maps.Keys(o.metrics)) {
		x := o.metrics[name]
		m := metric{name: name, drop: x.disabled, tags: map[string]string{}}
		if known := metricNames[name]; known != "" {
			m.name = known
		}
		for _, tag := range slices.Sorted(maps.Keys(x.tags)) {
			if x.tags[tag].GetOperation() == telemetryv1.MetricsOverrides_TagOverride_REMOVE {
				m.remove = append(m.remove, tag)
			} else {
				m.tags[tag] = x.tags[tag].GetValue()
			}
		}
		p.metrics = append(p.metrics, m)
	}
	return p, !o.disabled
}
