package traffic

import (
	"slices"
	"strings"
	"testing"

	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestAccessLogs: calls are logged in the configured format, over HTTP and TCP, by both sides, to files and to
// collectors. A filter excludes lines.
func TestAccessLogs(t *testing.T) {
	m := startTelemetry(t, "")
	has := func(line string) func() bool {
		return func() bool { return slices.Contains(m.lines(), line) }
	}
	m.apply("istio-system", `accessLogging: [{providers: [{name: text}, {name: json}]}]`, "client", "text %PROTOCOL%")
	m.wait("echo", "text %PROTOCOL%")
	m.get("client", "one", "")
	m.connect()
	for _, line := range []string{
		"text HTTP/1.1 200 one outbound|80||echo.a.svc.cluster.local", "text HTTP/1.1 200 one inbound|8080||",
		"text - 0 - outbound|90||echo.a.svc.cluster.local", "text - 0 - inbound|9090||",
		`{"cluster":"inbound|8080||","code":200,"id":"one","sort":"json"}`,
	} {
		suite.Eventually(t, line, has(line))
	}

	m.apply("istio-system", `accessLogging: [{providers: [{name: text}], filter: {expression: "request.headers['x-keep'] == 'yes'"}}]`,
		"client", "x-keep")
	m.wait("echo", "x-keep")
	m.get("client", "dropped", "")
	m.get("client", "kept", "", "x-keep", "yes")
	suite.Eventually(t, "the line that the filter keeps", has("text HTTP/1.1 200 kept inbound|8080||"))
	suite.Eventually(t, "the client's line that the filter keeps", has("text HTTP/1.1 200 kept outbound|80||echo.a.svc.cluster.local"))
	for _, line := range m.lines() { // each proxy writes its lines in the order of the calls
		if strings.Contains(line, "dropped") {
			t.Errorf("the filter keeps %s", line)
		}
	}

	m.apply("istio-system", `accessLogging: [{providers: [{name: als}, {name: tcp-als}, {name: otel-logs}, {name: missing-logs}]}]`,
		"client", "of-http")
	m.wait("echo", "of-http")
	m.get("client", "two", "")
	m.connect()
	c := m.collector
	suite.Eventually(t, "logs of HTTP by the access log service", func() bool {
		return c.has(func() bool {
			return c.names["of-http"] && slices.ContainsFunc(c.http, func(e *httpEntry) bool {
				return e.GetRequest().GetRequestHeaders()["x-id"] == "two" && e.GetResponse().GetResponseHeaders()["content-type"] != "" &&
					e.GetCommonProperties().GetUpstreamCluster() == "inbound|8080||"
			})
		})
	})
	suite.Eventually(t, "logs of TCP by the access log service", func() bool {
		return c.has(func() bool {
			return c.names["of-tcp"] && slices.ContainsFunc(c.tcp, func(e *tcpEntry) bool {
				return e.GetCommonProperties().GetUpstreamCluster() == "outbound|90||echo.a.svc.cluster.local"
			})
		})
	})
	suite.Eventually(t, "logs by OpenTelemetry", func() bool {
		return c.has(func() bool {
			return slices.ContainsFunc(c.records, func(r *logsv1.LogRecord) bool {
				return r.GetBody().GetStringValue() == "otel two" && len(r.Attributes) > 0
			})
		})
	})
	m.healthy()
}

// TestTraces: spans reach the collector by each protocol, with the configured tags and sampling.
func TestTraces(t *testing.T) {
	m := startTelemetry(t, "")
	c := m.collector
	const tags = `customTags: {made: {literal: {value: NAME}}, id: {header: {name: x-id}}, home: {environment: {name: NOBODY_SETS_IT, ` +
		`defaultValue: none}}, code: {formatter: {value: "%RESPONSE_CODE%"}}}`
	for _, p := range []struct{ name, protocol string }{{"zipkin", "zipkin"}, {"otel-grpc", "grpc"}, {"otel-http", "http"}} {
		m.apply("a", "tracing: [{providers: [{name: "+p.name+"}], randomSamplingPercentage: 100, "+strings.ReplaceAll(tags, "NAME", p.name)+"}]",
			"client", p.name)
		m.wait("echo", p.name)
		m.get("client", p.name, "")
		for _, service := range []string{"client.a", "echo.a"} {
			suite.Eventually(t, "a span of "+service+" by "+p.name, func() bool {
				return c.has(func() bool {
					return slices.ContainsFunc(c.spans, func(s span) bool {
						return s.protocol == p.protocol && s.service == service && s.tags["made"] == p.name && s.tags["id"] == p.name &&
							s.tags["home"] == "none" && s.tags["code"] == "200" && s.tags["istio.namespace"] == "a"
					})
				})
			})
		}
	}

	m.apply("a", "tracing: [{providers: [{name: zipkin}], randomSamplingPercentage: 0, customTags: {never: {literal: {value: sampled}}}}]",
		"client", "never")
	m.wait("echo", "never")
	for range 10 {
		m.get("client", "never", "")
	}
	// Later spans arrive after the spans of earlier calls.
	m.apply("a", "tracing: [{providers: [{name: zipkin}], randomSamplingPercentage: 100, customTags: {last: {literal: {value: sampled}}}}]",
		"client", `"last"`)
	m.wait("echo", `"last"`)
	m.get("client", "last", "")
	suite.Eventually(t, "the last spans", func() bool {
		return c.has(func() bool {
			return slices.ContainsFunc(c.spans, func(s span) bool { return s.tags["last"] != "" && s.service == "echo.a" })
		})
	})
	if c.has(func() bool { return slices.ContainsFunc(c.spans, func(s span) bool { return s.tags["never"] != "" }) }) {
		t.Error("a call is traced that is not sampled")
	}
	for _, p := range []string{"missing-traces", "datadog", "skywalking"} {
		marker := "mark-" + p
		if p == "missing-traces" {
			marker = "" // it is left out with all its settings
		}
		m.apply("a", "tracing: [{providers: [{name: "+p+"}], customTags: {mark-"+p+": {literal: {value: x}}}}]", "client", marker)
		m.wait("echo", marker) // a connection to a draining listener may end while it is used
		m.get("client", p, "")
	}
	m.healthy()
}

// TestEditReachesItsNamespace: a change for one namespace sends nothing to others.
func TestEditReachesItsNamespace(t *testing.T) {
	m := startTelemetry(t, "defaultProviders: {accessLogging: [text]}\n")
	m.wait("other", "text %PROTOCOL%")
	before := m.updates("other")
	m.apply("a", `accessLogging: [{providers: [{name: json}]}]`, "client", `"sort"`)
	m.wait("echo", `"sort"`)
	if after := m.updates("other"); after != before {
		t.Errorf("the proxy of another namespace was updated %d times", after-before)
	}
	m.healthy()
}
