package accesslog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// TestFlags: each response flag of Envoy's documentation has a meaning, by both of its names.
func TestFlags(t *testing.T) {
	const documented = `NoHealthyUpstream UH UpstreamConnectionFailure UF UpstreamOverflow UO NoRouteFound NR
		UpstreamRetryLimitExceeded URX NoClusterFound NC DurationTimeout DT DownstreamConnectionTermination DC
		FailedLocalHealthCheck LH UpstreamRequestTimeout UT LocalReset LR UpstreamRemoteReset UR
		UpstreamConnectionTermination UC DelayInjected DI FaultInjected FI RateLimited RL UnauthorizedExternalService UAEX
		RateLimitServiceError RLSE InvalidEnvoyRequestHeaders IH StreamIdleTimeout SI DownstreamProtocolError DPE
		UpstreamProtocolError UPE UpstreamMaxStreamDurationReached UMSDR ResponseFromCacheFilter RFCF
		NoFilterConfigFound NFCF OverloadManagerTerminated OM DnsResolutionFailed DF DropOverload DO
		DownstreamRemoteReset DR UnconditionalDropOverload UDO`
	n := 0
	for pair := range slices.Chunk(strings.Fields(documented), 2) {
		n++
		for _, name := range pair {
			e, err := Parse(name, Defaults())
			if err != nil || e.Kind != Flags || len(e.Flags) != 1 || e.Flags[0] != pair[1] {
				t.Errorf("%s: %+v, %v", name, e, err)
				continue
			}
			if m := e.Meanings(); len(m) != 1 || m[0].Says == "" || m[0].Look == "" || m[0].Long != pair[0] {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
	if n != len(flags()) {
		t.Errorf("%d flags are documented, and %d known", n, len(flags()))
	}
}

// TestMeaningsAreSentences: each meaning says what happened and what to look at, in whole sentences.
func TestMeaningsAreSentences(t *testing.T) {
	for _, m := range slices.Concat(flags(), details()) {
		for _, text := range []string{m.Says, m.Look} {
			if !strings.HasSuffix(text, ".") || text[0] < 'A' || text[0] > 'Z' {
				t.Errorf("%s: %q is no sentence", m.Name, text)
			}
		}
	}
}

const istioLine = `[2026-11-29T13:20:16.123Z] "GET /v2/x?a=b HTTP/1.1" 503 UH no_healthy_upstream - "-" 0 19 0 - "-" ` +
	`"curl/8.5 (a \"b\")" "0b0e" "api" "-" outbound|80||api.a.svc.cluster.local - 10.1.0.2:80 10.0.0.1:40000 - default`

func meshOf(format string, json bool) *meshv1alpha1.MeshConfig {
	m := &meshv1alpha1.MeshConfig{AccessLogFormat: format}
	if json {
		m.AccessLogEncoding = meshv1alpha1.MeshConfig_JSON
	}
	return m
}

// TestLines: lines in all formats yield what they say.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, text string
		mesh       *meshv1alpha1.MeshConfig
		want       string
	}{
		{"Istio's text", istioLine, nil,
			"line 503 UH no_healthy_upstream | GET /v2/x?a=b api | 10.0.0.1:40000 10.1.0.2:80 outbound|80||api.a.svc.cluster.local"},
		{"with kubectl's prefix and time", "[pod/web-1/istio-proxy] 2026-11-29T13:20:17.000000001Z " + istioLine, nil,
			"line 503 UH no_healthy_upstream | GET /v2/x?a=b api | 10.0.0.1:40000 10.1.0.2:80 outbound|80||api.a.svc.cluster.local pod=web-1"},
		{"a refused request at its destination", `[2024-04-03T10:12:11.001Z] "GET / HTTP/1.1" 403 - ` +
			`rbac_access_denied_matched_policy[ns[a]-policy[some]-rule[0]] - "-" 0 19 0 - "-" "curl/8" "1" "api:80" "-" inbound|80|| - ` +
			`10.0.0.2:80 10.0.0.1:51000 outbound_.80_._.api.a.svc.cluster.local default`, nil,
			"line 403 rbac_access_denied_matched_policy[ns[a]-policy[some]-rule[0]] | GET / api:80 | 10.0.0.1:51000 10.0.0.2:80 inbound|80|| " +
				"sni=outbound_.80_._.api.a.svc.cluster.local policy=ns[a]-policy[some]-rule[0]"},
		{"TLS that failed", `[2024-04-03T10:12:11.001Z] "GET / HTTP/2" 503 UF,URX upstream_reset_before_response_started{connection_failure,` +
			`TLS_error:|268435703:SSL_routines:OPENSSL_internal:WRONG_VERSION_NUMBER} - "TLS_error:|268435703:SSL_routines:OPENSSL_internal:` +
			`WRONG_VERSION_NUMBER:TLS_error_end" 0 223 12 - "-" "curl/8" "1" "api:80" "10.0.0.2:80" outbound|80||api.a.svc.cluster.local - ` +
			`[fd00::1]:80 [fd00::2]:51000 - -`, nil,
			"line 503 UF,URX upstream_reset_before_response_started{connection_failure,TLS_error:|268435703:SSL_routines:OPENSSL_internal:" +
				"WRONG_VERSION_NUMBER} | GET / api:80 | [fd00::2]:51000 [fd00::1]:80 outbound|80||api.a.svc.cluster.local " +
				"causes=TLS connection"},
		{"a connection", `[2024-04-03T10:12:11.001Z] "- - -" 0 NR filter_chain_not_found - "-" 0 0 0 - "-" "-" "-" "-" "-" - - 10.0.0.2:80 ` +
			`10.0.0.1:51000 - -`, nil, "line 0 NR filter_chain_not_found | | 10.0.0.1:51000 10.0.0.2:80"},
		{"a connection that a policy refuses", `[2024-04-03T10:12:11.001Z] "- - -" 0 - - ` +
			`rbac_access_denied_matched_policy[none] "-" 0 0 0 - "-" "-" "-" "-" "-" inbound|90|| - 10.0.0.2:90 10.0.0.1:51000 ` +
			`outbound_.90_._.api.a.svc.cluster.local -`, nil,
			"line 0 rbac_access_denied_matched_policy[none] | | 10.0.0.1:51000 10.0.0.2:90 inbound|90|| " +
				"sni=outbound_.90_._.api.a.svc.cluster.local policy=none"},
		{"before Istio 1.8", `[2020-04-03T10:12:11.001Z] "GET / HTTP/1.1" 404 NR "-" "-" 0 0 1 - "-" "curl/7" "1" "web:80" "-" - - 10.1.0.2:80 ` +
			`10.0.0.1:51000 - default`, nil, "line 404 NR | GET / web:80 | 10.0.0.1:51000 10.1.0.2:80"},
		{"Envoy's", `[2020-04-03T10:12:11.001Z] "GET / HTTP/1.1" 503 UC 0 95 1 - "-" "curl/7" "1" "web:80" "10.0.0.2:80"`, nil,
			"line 503 UC | GET / web:80 |"},
		{"JSON", `{"response_code":503,"response_flags":"UH","method":"GET","path":"/","authority":"api",` +
			`"start_time":"2026-11-29T13:20:16.123Z","downstream_remote_address":"10.0.0.1:4","downstream_local_address":"10.1.0.2:80",` +
			`"upstream_cluster":"outbound|80||api","route_name":null}`,
			nil, "line 503 UH | GET / api | 10.0.0.1:4 10.1.0.2:80 outbound|80||api"},
		{"JSON with another key", `{"response_code":0,"response_flags":"-","method":null,"authority":null,` +
			`"start_time":"2026-11-29T13:20:16.123Z","requested_server_name":"a.test",` +
			`"downstream_remote_address":"10.0.0.1:4","downstream_local_address":"10.1.0.2:443",` +
			`"downstream_transport_failure_reason":"TLS_error:|268435646:SSL_routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE"}`,
			nil, "line 0 | | 10.0.0.1:4 10.1.0.2:443 sni=a.test causes=TLS"},
		{"JSON in a collector's", `{"log":"{\"response_code\":404,\"response_flags\":\"NR\",\"method\":\"GET\"}\n","stream":"stdout"}`, nil,
			"line 404 NR | GET |"},
		{"text in a collector's", `{"stream":"stdout","log":` + fmt.Sprintf("%q", istioLine) + `}`, nil,
			"line 503 UH no_healthy_upstream | GET /v2/x?a=b api | 10.0.0.1:40000 10.1.0.2:80 outbound|80||api.a.svc.cluster.local"},
		{"the mesh's JSON", `{"who":"10.0.0.1","to":{"host":"api","code":"503 UH"},"x":"ja"}`,
			meshOf(`{"who":"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%","x":"%REQ(X-User)%",`+
				`"to":{"host":"%REQ(:AUTHORITY)%","code":"%RESPONSE_CODE% %RESPONSE_FLAGS%"}}`, true),
			"line 503 UH | api | 10.0.0.1 header x-user=ja"},
		{"names of commands", `{"response_flags":"UF","upstream_cluster":"outbound|80||api","other":[1]}`, nil, "line UF | | outbound|80||api"},
		{"the mesh's text", `503|UH|10.0.0.1|10.1.0.2|80|GET|/a b|web-1|a`,
			meshOf(`%RESPONSE_CODE%|%RESPONSE_FLAGS_LONG%|%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%|%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%|`+
				`%DOWNSTREAM_LOCAL_PORT%|%REQ(:METHOD)%|%PATH(NQ)%|%HOSTNAME%|%ENVIRONMENT(POD_NAMESPACE)%`, false),
			"line 503 UH | GET /a b | 10.0.0.1 10.1.0.2:80 pod=web-1.a"},
		{"a value that is cut", `/abc "x" 100%`,
			meshOf(`%REQ(X-ENVOY-ORIGINAL-PATH?:PATH):4% "%REQ(:METHOD)%" 100%%`, false), "line | x /abc | cut=REQ"},
		{"a provider's", `404 - route_not_found`, &meshv1alpha1.MeshConfig{ExtensionProviders: []*meshv1alpha1.MeshConfig_ExtensionProvider{{
			Name: "files", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
				EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{
					LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{
						LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text{
							Text: "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%"}}}}}}},
			"line 404 route_not_found | |"},
		{"a response", `upstream connect error or disconnect/reset before headers. reset reason: connection failure, transport failure reason: ` +
			`TLS error: 268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED`, nil,
			"response 503 UF upstream_reset_before_response_started{connection_failure} | | causes=TLS connection"},
		{"a response after retries", `upstream connect error or disconnect/reset before headers. retried and the latest reset reason: remote ` +
			`connection failure, transport failure reason: delayed connect error: Connection refused`, nil,
			"response 503 UF upstream_reset_before_response_started{connection_failure} | | causes=connection"},
		{"a reset", `upstream connect error or disconnect/reset before headers. reset reason: connection termination`, nil,
			"response 503 UC upstream_reset_before_response_started{connection_termination} | |"},
		{"no endpoint", `rpc error: code = Unavailable desc = no healthy upstream`, nil, "response 503 UH no_healthy_upstream | |"},
		{"a policy", `RBAC: access denied`, nil, "response 403 rbac_access_denied_matched_policy | |"},
		{"a token", `Jwt is missing`, nil, "response 401 jwt_authn_access_denied{Jwt_is_missing} | | causes=token"},
		{"keys", `Jwks remote fetch is failed`, nil, "response 401 jwt_authn_access_denied{Jwks_remote_fetch_is_failed} | |"},
		{"a rule", `ns[a]-policy[some]-rule[0]`, nil, "flags rbac_access_denied_matched_policy[ns[a]-policy[some]-rule[0]] | | " +
			"policy=ns[a]-policy[some]-rule[0]"},
		{"a rule without an authorizer", `default-deny-all-due-to-bad-CUSTOM-action`, nil,
			"flags rbac_access_denied_matched_policy[default-deny-all-due-to-bad-CUSTOM-action] | | " +
				"policy=default-deny-all-due-to-bad-CUSTOM-action causes=policy"},
		{"Istio 1.1", `[2019-09-17T11:11:11.939Z] "GET /x HTTP/1.1" 404 NR 0 0 0 - "10.0.0.1" "curl" "7" "a.test:31080" "-" - - 10.0.0.2:443 ` +
			`10.0.0.1:5 a.test`, nil, "line 404 NR | GET /x a.test:31080 | 10.0.0.1:5 10.0.0.2:443 sni=a.test"},
		{"Istio 1.2", `[2019-09-17T11:11:11.939Z] "GET /x HTTP/1.1" 404 NR "-" 0 0 0 - "10.0.0.1" "curl" "7" "a.test:31080" "-" - - ` +
			`10.0.0.2:80 10.0.0.1:5 -`, nil, "line 404 NR | GET /x a.test:31080 | 10.0.0.1:5 10.0.0.2:80"},
		{"Istio 1.0", `[2019-09-17T11:11:11.939Z] "GET /x HTTP/1.1" 404 NR 0 0 0 - "10.0.0.1" "curl" "7" "a.test:31080" "-" - - ` +
			`10.0.0.2:80 10.0.0.1:5`, nil, "line 404 NR | GET /x a.test:31080 | 10.0.0.1:5 10.0.0.2:80"},
		{"a connection that is refused", `[2024-05-28T18:42:53.929Z] "- - -" 0 UF,URX - - "delayed_connect_error:_111" 0 0 0 - "-" "-" "-" "-" ` +
			`"10.0.0.2:7801" InboundPassthroughCluster - 10.0.0.2:7801 10.0.0.1:33948 - -`, nil,
			"line 0 UF,URX | | 10.0.0.1:33948 10.0.0.2:7801 InboundPassthroughCluster causes=connection"},
		{"flags", `503 UF,URX`, nil, "flags 503 UF,URX | |"},
		{"a flag with details", `NR filter_chain_not_found`, nil, "flags NR filter_chain_not_found | |"},
	} {
		formats := Defaults()
		if c.mesh != nil {
			formats = FormatsOf(c.mesh)
		}
		e, err := Parse(c.text, formats)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := shown(e, c.want); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if len(e.Meanings()) == 0 && e.Failed() && e.Details+strings.Join(e.Flags, "") != "" {
			t.Errorf("%s: no meaning", c.name)
		}
	}
}

// shown returns an entry in one line. Causes are shown if they are wanted.
func shown(e *Entry, want string) string {
	parts := []string{string(e.Kind)}
	add := func(texts ...string) {
		for _, s := range texts {
			if s != "" {
				parts = append(parts, s)
			}
		}
	}
	if e.HasCode {
		add(fmt.Sprint(e.Code))
	}
	add(strings.Join(e.Flags, ","), e.Details, e.Termination, "|", e.Method, e.Path, e.Authority, "|", e.DownstreamRemote, e.DownstreamLocal,
		e.UpstreamCluster)
	if e.ServerName != "" {
		add("sni=" + e.ServerName)
	}
	if p := e.Policy(); p != "" {
		add("policy=" + p)
	}
	if user := e.Headers["x-user"]; user != "" {
		add("header x-user=" + user)
	}
	if e.Pod != "" {
		add("pod=" + strings.TrimSuffix(e.Pod+"."+e.Namespace, "."))
	}
	if len(e.Shortened) > 0 {
		add("cut=" + strings.Join(e.Shortened, ","))
	}
	if strings.Contains(want, "causes=") {
		add("causes=" + strings.Trim(fmt.Sprint(e.Causes()), "[]"))
	}
	return strings.Join(parts, " ")
}

// TestTimes: the time of a line is read in the forms that formats use.
func TestTimes(t *testing.T) {
	want := time.Date(2026, 11, 29, 13, 20, 16, 0, time.UTC)
	for _, text := range []string{"2026-11-29T13:20:16.000Z", "2026-11-29T14:20:16+01:00", "1795958416", "1795958416000", "1795958416.000",
		"29/Nov/2026:13:20:16 +0000"} {
		if got := parseTime(text); !got.Equal(want) {
			t.Errorf("%s: %v", text, got)
		}
	}
	for _, text := range []string{"", "noon", "1", "1e300", "NaN", "-5"} {
		if got := parseTime(text); !got.IsZero() {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestMistakes: a text that is none of what is understood is an error that says what is wrong with it.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "it is empty",
		" \n":                          "it is empty",
		"hello":                        "it is no line of an access log",
		"503 | UH no healthy upstream": "it is no line of an access log",
		"UF,XYZ":                       "it is no line",
		"UF URX UH":                    "it is no line",
		"999":                          "it is no line",
		istioLine + "\n" + istioLine:   "it has 2 lines",
		strings.Repeat("x", 70000):     "it has 70000 bytes",
		`{"a":`:                        "it begins as a JSON object and is none",
		`{"a":1}`:                      "without the fields of an access log",
		`{"response_code":"1"} {}`:     "something behind the JSON object",
		`{"response_code":"many"}`:     "without the fields",
		`{"log":{"log":{"log":"x"}}}`:  "without the fields",
	} {
		e, err := Parse(text, Defaults())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %+v, %v", text, e, err)
		}
	}
}

// FuzzParse: no text and no format makes Parse panic, and what is read can be explained.
func FuzzParse(f *testing.F) {
	for _, format := range []string{
		"", "%RESPONSE_FLAGS%", `%START_TIME(%s)%%REQ(A?B):3%"%RESPONSE_CODE%"`, `{"a":"%REQ(:PATH)%","b":{"c":"x%%"}}`,
		"%PROTOCOL%\xad",
	} {
		for _, text := range []string{
			istioLine, `{"log":"x","a":"/","b":{"c":"x%"}}`, "UF,URX", "no healthy upstream", "İ" + connectError + " reset reason:",
		} {
			f.Add(text, format)
		}
	}
	f.Fuzz(func(t *testing.T, text, format string) {
		e, err := Parse(text, FormatsOf(meshOf(format, strings.HasPrefix(format, "{"))))
		if (e == nil) == (err == nil) {
			t.Fatal("neither an entry nor an error, or both")
		}
		if e != nil {
			_, _, _, _ = e.Meanings(), e.Answer(), e.Policy(), e.Failed()
			_, _ = HostPort(e.DownstreamLocal), Host(e.DownstreamRemote)
		}
	})
}
