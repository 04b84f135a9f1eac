package telemetry

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// plugin is the configuration of istio.stats: the message stats.PluginConfig, for which there is no Go package.
// https://istio.io/latest/docs/reference/config/proxy_extensions/stats/
type plugin struct {
	noHostFallback bool          // never name the destination after a Host header
	interval       time.Duration // time between reports about a TCP connection; 0 for the default
	metrics        []metric
}

// metric is the change of one metric: the message stats.MetricConfig.
type metric struct {
	name   string            // empty for all
	drop   bool              // whether it is not recorded
	tags   map[string]string // tags to add, with the expressions of their values
	remove []string          // tags to remove, sorted
}

// Numbers of fields.
const (
	pluginNoHostFallback = 6
	pluginInterval       = 7
	pluginMetrics        = 8

	metricTags   = 1
	metricName   = 2
	metricRemove = 3
	metricDrop   = 5

	entryKey   = 1
	entryValue = 2

	durationSeconds = 1
	durationNanos   = 2
)

// encode returns the message in the order of field numbers, its tags sorted.
func (p plugin) encode() *anypb.Any {
	var b []byte
	if p.noHostFallback {
		b = appendBool(b, pluginNoHostFallback)
	}
	if p.interval > 0 {
		var d []byte
		d = appendVarint(d, durationSeconds, uint64(p.interval/time.Second))
		d = appendVarint(d, durationNanos, uint64(p.interval%time.Second))
		b = appendBytes(b, pluginInterval, d)
	}
	for _, m := range p.metrics {
		b = appendBytes(b, pluginMetrics, m.encode())
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/stats.PluginConfig", Value: b}
}

func (m metric) encode() []byte {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m.tags)) {
		b = appendBytes(b, metricTags, appendBytes(appendBytes(nil, entryKey, []byte(k)), entryValue, []byte(m.tags[k])))
	}
	if m.name != "" {
		b = appendBytes(b, metricName, []byte(m.name))
	}
	for _, t := range m.remove {
		b = appendBytes(b, metricRemove, []byte(t))
	}
	if m.drop {
		b = appendBool(b, metricDrop)
	}
	return b
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendVarint(b []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

func appendBool(b []byte, field protowire.Number) []byte { return appendVarint(b, field, 1) }
