package traffic

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// seen calls the server from the client with an ID, and reports whether the server saw a trace.
func (m *telemetryMesh) seen(id string) bool {
	m.t.Helper()
	var answer echo.Answer
	must.Succeed(m.t, json.Unmarshal(m.get("client", id, "?header=x-b3-traceid").body, &answer))
	return answer.Headers["x-b3-traceid"] != ""
}

// TestTraceSettings: an object removes the mesh's own tags from spans, reports one side only, reports no spans, or does
// not propagate the trace.
func TestTraceSettings(t *testing.T) {
	m := startTelemetry(t, "")
	c := m.collector
	// spans returns the tags of the spans of a service that belong to an ID.
	spans := func(id, service string) (list []map[string]string) {
		c.has(func() bool {
			for _, s := range c.spans {
				if s.tags["of"] == id && s.service == service {
					list = append(list, s.tags)
				}
			}
			return false
		})
		return list
	}
	const tracing = `providers: [{name: zipkin}], randomSamplingPercentage: 100, customTags: {of: {header: {name: x-id}}, NAME: {literal: ` +
		`{value: x}}}`
	for _, x := range []struct {
		name, spec     string
		client, server int  // spans
		istio          bool // spans have tags of the mesh
		trace          bool // the server sees a trace
	}{
		{"mark-all", tracing, 1, 1, true, true},
		{"mark-bare", tracing + `, enableIstioTags: false`, 1, 1, false, true},
		{"mark-client", tracing + `, match: {mode: CLIENT}`, 1, 0, true, true},
		{"mark-silent",
			`disableSpanReporting: true}], accessLogging: [{providers: [{name: text}], filter: {expression: "request.headers['NAME'] == 'x'"}`, 0, 0,
			false, false},
		{"mark-alone", tracing + `, disableContextPropagation: true`, 1, 1, true, false},
		{"mark-unasked", tracing + `, useRequestIdForTraceSampling: false`, 1, 1, true, true},
	} {
		m.apply("a", "tracing: [{"+strings.ReplaceAll(x.spec, "NAME", x.name)+"}]", "client", x.name)
		m.wait("echo", x.name)
		if got := m.seen(x.name); got != x.trace {
			t.Errorf("%s: the server sees a trace: %t", x.name, got)
		}
		// Unwanted spans would arrive before those of the next objects.
		suite.Eventually(t, x.name+": the spans", func() bool {
			return len(spans(x.name, "client.a")) >= x.client && len(spans(x.name, "echo.a")) >= x.server
		})
		for _, tags := range slices.Concat(spans(x.name, "client.a"), spans(x.name, "echo.a")) {
			if _, ok := tags["istio.namespace"]; ok != x.istio {
				t.Errorf("%s: the tags of a span are %v", x.name, tags)
			}
		}
	}
	for id, want := range map[string][2]int{"mark-client": {1, 0}, "mark-silent": {0, 0}} {
		if got := [2]int{len(spans(id, "client.a")), len(spans(id, "echo.a"))}; got != want {
			t.Errorf("%s: %d spans of client and server, want %d", id, got, want)
		}
	}
	m.healthy()
}

// TestLogSettings: only one side of a call is logged, and the object of a namespace or workload disables the mesh's
// logs.
func TestLogSettings(t *testing.T) {
	m := startTelemetry(t, "")
	count := func(id, cluster string) (n int) {
		for _, l := range m.lines() {
			if strings.HasPrefix(l, "text HTTP/1.1 200 "+id+" "+cluster) {
				n++
			}
		}
		return n
	}
	const logging = `accessLogging: [{providers: [{name: text}]MORE}], tracing: [{providers: [{name: zipkin}], customTags: {NAME: {literal: ` +
		`{value: x}}}}]`
	apply := func(name, more string) {
		t.Helper()
		m.apply("a", strings.NewReplacer("NAME", name, "MORE", more).Replace(logging), "client", name)
		m.wait("echo", name)
		m.get("client", name, "")
	}
	apply("mark-client", ", match: {mode: CLIENT}")
	apply("mark-off", ", disabled: true")
	apply("mark-server", ", match: {mode: SERVER}")
	apply("mark-both", "")
	for id, want := range map[string][2]int{"mark-both": {1, 1}, "mark-client": {1, 0}, "mark-server": {0, 1}, "mark-off": {0, 0}} {
		got := func() [2]int { return [2]int{count(id, "outbound|"), count(id, "inbound|")} }
		suite.Eventually(t, id+": the lines", func() bool { return got()[0] >= want[0] && got()[1] >= want[1] })
		if got := got(); got != want {
			t.Errorf("%s: %d lines of client and server, want %d", id, got, want)
		}
	}
	m.healthy()
}
