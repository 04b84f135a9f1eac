package validation

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// headerFault returns the message and the fix for a header value, both empty where it is accepted.
func headerFault(value string) (message, fix string) {
	f, l := &findings{}, limits.Default()
	fieldRef{checker: &checker{findings: f, limits: &l},
		node: &node{shape: text, value: value}, pos: pos{1, 1}, base: "x"}.headerValue()
	if len(f.list) == 0 {
		return "", ""
	}
	return f.list[0].Message, f.list[0].Fix
}

// What Envoy 1.40 takes as the value of a header, by its own judgement.
func TestHeaderValuesThatEnvoyTakes(t *testing.T) {
	for _, value := range []string{
		"", "plain", "100%%", "%%%%", "a\tb", "é", "%%%REQ(a)%", "%REQ(a)%%REQ(b)%",
		"%REQ(a)%%%", "100%% of %REQ(a)% ", "%REQ(a)%", "%REQ(a):3%", "%REQ(:path?x-b)%",
		"%REQ(?b)%", "%REQ(a%b)%", "%RESP(a)%", "%TRAILER(a):1%", "%START_TIME%",
		"%START_TIME()%", "%START_TIME(%s.%3f)%", "%START_TIME(a)b)%", "%START_TIME(%E9n)%",
		"%DOWNSTREAM_PEER_CERT_V_START(%b)%", "%DOWNSTREAM_REMOTE_ADDRESS%",
		"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(24)%", "%RESPONSE_CODE%", "%RESPONSE_CODE()%",
		"%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%", "%HOSTNAME%", "%PROTOCOL%", "%REQUESTED_SERVER_NAME%",
		"%FILTER_STATE(foo)%", "%FILTER_STATE(foo:)%", "%FILTER_STATE(foo:TYPED)%",
		"%FILTER_STATE(foo:PLAIN):5%", "%FILTER_STATE(foo:FIELD:a)%", "%UPSTREAM_METADATA(ns:k)%",
		`%UPSTREAM_METADATA(["ns","k"])%`, `%DYNAMIC_METADATA(["ns","k"]):4%`,
		"%CLUSTER_METADATA(ns)%", "%PER_REQUEST_STATE(x)%", "%ENVIRONMENT(A):3%",
		"%METADATA(ROUTE:a):3%", "%COMMON_DURATION(a:b:ms)%", "%PATH%", "%PATH(NQ:ORIG):5%",
		"%PATH(:PATH)%", "%QUERY_PARAM(a b)%", "%QUERY_PARAMS:3%", "%QUERY_PARAMS(DECODED):3%",
		"%TRACE_ID%", "%STREAM_ID%", "%ROUTE_NAME%", "%VIRTUAL_CLUSTER_NAME%",
		`%COALESCE({"operators": ["REQUESTED_SERVER_NAME", {"command": "REQ", "param": ":authority", "max_length": 5}]}):50%`,
	} {
		message, _ := headerFault(value)
		recent := strings.Contains(message, "proxies before Envoy 1.40 do not have")
		if message != "" && !recent || recent != strings.Contains(value, "QUERY_PARAMS") {
			t.Errorf("%q: %q", value, message)
		}
	}
}

// What Envoy 1.40 refuses, and what the fix has to say.
func TestHeaderValuesThatEnvoyRefuses(t *testing.T) {
	for value, fix := range map[string]string{
		"100%": "%%", "%%%": "%%", "%START_TIME": "%%", "%REQ(%": "%%", "%REQ(a": "%%", "%REQ(a)%%": "%%", "%REQ(a)b%": "%%",
		"%req(a)%": "%%", "% a%": "%%", "%%A%": "%%", "%REQ(a):x%": "%%", "%REQ(a):-1%": "%%", "%REQ(a):%": "%%",
		"%REQ(a):99999999999999999999%": "%%", "%NOPE%": "%%", "%HOST_NAME%": "HOSTNAME", "%RESPONSE_COD%": "RESPONSE_CODE",
		"%_%": "%%", "%CEL(request.path)%": "another", "%QUERY_PARAMS(:):3%": "DECODED", "a\nb": "remove", "a\rb": "remove",
		"a\x00b": "remove", "%RESPONSE_CODE:3%": "remove", "%RESPONSE_CODE(x)%": "%RESPONSE_CODE%", "%REQ%": "%REQ(...)%",
		"%REQ()%": "%REQ(...)%", "%REQ:3%": "%REQ(...)%", "%REQ(a?b?c)%": "remove", "%REQ(a b)%": "letters",
		"%REQ(a:b)%": "letters", "%RESP(é)%": "letters", "%START_TIME(a):5%": "remove", "%START_TIME(%D%n)%": "%n",
		"%START_TIME(%_n)%": "%n", "%EMIT_TIME(%-3En)%": "%n", "%FILTER_STATE(foo:XX)%": "PLAIN",
		"%FILTER_STATE(a:plain)%": "PLAIN", "%FILTER_STATE(:PLAIN)%": "key", "%FILTER_STATE(a:FIELD)%": "FIELD:name",
		"%FILTER_STATE(a:PLAIN:b)%": "FIELD:name", "%CLUSTER_METADATA(a:b):3%": "remove", "%UPSTREAM_METADATA%": "(...)",
		"%PER_REQUEST_STATE(x):3%": "remove", "%METADATA(X:a)%": "ROUTE", "%COMMON_DURATION(x)%": "start:end",
		"%COMMON_DURATION(a:b:xs)%": "ms", "%PATH(XX)%": "NQ", "%PATH(WQ:XX)%": "ORIG", "%QUERY_PARAMS(X)%": "DECODED",
		"%QUERY_PARAM()%": "(...)", "%ENVIRONMENT%": "(...)", `%COALESCE({"operators": ["NOPE"]})%`: "%%",
		"%COALESCE({})%": "operators", "%COALESCE(x)%": "operators",
	} {
		message, got := headerFault(value)
		if message == "" || !strings.Contains(got, fix) {
			t.Errorf("%q: message %q, fix %q, want a fix with %q", value, message, got, fix)
		}
	}
}

// TestLongHeaderValues: what is said of a long value is short.
func TestLongHeaderValues(t *testing.T) {
	const long = 1 << 18
	for _, value := range []string{
		strings.Repeat("%A(", long), "%" + strings.Repeat("A", long) + "%",
		"%REQ(" + strings.Repeat("(", long) + ")%", "%METADATA(" + strings.Repeat("é", long) + ")%",
		"%FILTER_STATE(a:" + strings.Repeat("a", long) + ")%",
	} {
		if message, fix := headerFault(value); message == "" || len(message)+len(fix) > 2000 {
			t.Errorf("%.20q: %d bytes, and to mend it %d", value, len(message), len(fix))
		}
	}
}
