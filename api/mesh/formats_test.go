package mesh

import (
	"strings"
	"testing"
)

// TestFormats: a text with a command that proxies do not know is an error that names its place. A log has the default
// format then, a provider with such a header is left out, and the rest of the text is used.
func TestFormats(t *testing.T) {
	for _, c := range []struct{ yaml, field, left string }{
		{`accessLogFormat: "%START_TIME% %NOPE%\n"`, "accessLogFormat", "a b"},
		{`accessLogFormat: "100%"`, "accessLogFormat", "a b"},
		{`{accessLogEncoding: JSON, accessLogFormat: '{"x": {"y": ["%NOPE%"]}}'}`, "accessLogFormat.x.y[0]", "a b"},
		{`extensionProviders: [{name: a, envoyFileAccessLog: {logFormat: {text: "%NOPE%"}}}, {name: b, prometheus: {}}]`,
			"extensionProviders[0].envoyFileAccessLog.logFormat.text", "a b"},
		{
			`extensionProviders: [{name: a, envoyFileAccessLog: {logFormat: {labels: {x: "%REQ(a b)%"}}}}, {name: b, prometheus: {}}]`,
			"extensionProviders[0].envoyFileAccessLog.logFormat.labels.x", "a b",
		},
		{
			`extensionProviders: [{name: a, envoyOtelAls: {service: x.y.svc, port: 1, logFormat: {text: "%NOPE%"}}}, {name: b, prometheus: {}}]`,
			"extensionProviders[0].envoyOtelAls.logFormat.text", "a b",
		},
		{
			`extensionProviders: [{name: a, envoyExtAuthzHttp: {service: x.y.svc, port: 1, ` +
				`includeAdditionalHeadersInCheck: {h: "50%"}}}, {name: b, prometheus: {}}]`,
			"extensionProviders[0].envoyExtAuthzHttp.includeAdditionalHeadersInCheck[h]", "b",
		},
		{
			`extensionProviders: [{name: a, zipkin: {service: x.y.svc, port: 1, headers: [{name: h, value: "%NOPE%"}]}}, {name: b, prometheus: {}}]`,
			"extensionProviders[0].zipkin.headers[0].value", "b",
		},
		{
			`extensionProviders: [{name: a, opentelemetry: {service: x.y.svc, port: 1, ` +
				`grpc: {initialMetadata: [{name: h, value: "%NOPE%"}]}}}, {name: b, prometheus: {}}]`,
			"extensionProviders[0].opentelemetry.grpc.initialMetadata[0].value", "b",
		},
		{`accessLogFormat: "%START_TIME% %REQ_WITHOUT_QUERY(X?:PATH):9% %CEL(request.headers['x'])% 100%%"`, "", "a b"},
		{`accessLogFormat: "%SPAN_ID%"`, "~accessLogFormat", "a b"},
	} {
		const more = "extensionProviders: [{name: a, prometheus: {}}, {name: b, prometheus: {}}]"
		yaml := c.yaml
		if !strings.Contains(yaml, "extensionProviders") && strings.HasPrefix(yaml, "{") {
			yaml = strings.TrimSuffix(yaml, "}") + ", " + more + "}"
		} else if !strings.Contains(yaml, "extensionProviders") {
			yaml += "\n" + more
		}
		config, findings := Salvage(Default(), "m", []byte(yaml))
		var fields []string
		for _, f := range findings {
			field := f.Field
			if !isError(f) {
				field = "~" + field
			}
			fields = append(fields, field)
		}
		if got := strings.Join(fields, " "); got != c.field || config == nil {
			t.Errorf("%s: faults in [%s], want [%s]: %v", yaml, got, c.field, findings)
			continue
		}
		var left []string
		for _, name := range []string{"a", "b"} {
			if config.Provider(name) != nil {
				left = append(left, name)
			}
		}
		if got := strings.Join(left, " "); got != c.left {
			t.Errorf("%s: providers %s are left, want %s", yaml, got, c.left)
		}
		if strings.Contains(config.String(), "NOPE") || strings.Contains(config.String(), "a b)%") {
			t.Errorf("%s: it is in force: %v", yaml, config)
		}
	}
}
