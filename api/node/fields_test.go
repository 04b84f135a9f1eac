package node

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestFieldsAreRead compares Fields with what Parse reads and with the entries that istiod 1.31 and its agent know: a
// field has an effect if and only if Parse reads it, and each entry is a field.
func TestFieldsAreRead(t *testing.T) {
	istiod := strings.Fields(known + `
		ENVOY_SECURE_METRICS_PORT ENVOY_SECURE_MERGED_METRICS_PORT EXIT_ON_ZERO_ACTIVE_CONNECTIONS
		OUTBOUND_LISTENER_EXACT_BALANCE CLOUDRUN_ADDR ENVOY_SKIP_DEPRECATED_LOGS WORKLOAD_IDENTITY_SOCKET_FILE
		DNS_PROXY_ADDR BASE TLS_SERVER_KEY TLS_SERVER_ROOT_CERT TLS_CLIENT_CERT_CHAIN TLS_CLIENT_ROOT_CERT NAME OWNER
		PILOT_SAN OUTLIER_LOG_PATH APP_CONTAINERS ISTIO_PROXY_SHA credential file-credential`)
	var keys []string
	for _, f := range Fields() {
		if slices.Contains(keys, f.Key) {
			t.Errorf("%s is there twice", f.Key)
		}
		keys = append(keys, f.Key)
		if (f.Effect == "") == (f.Reason == "") || (f.Fix == "") != (f.asks == nil) {
			t.Errorf("%s: %+v", f.Key, f)
		}
		_, err := Parse(decode(t, `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"`+f.Key+`":["x"]}}`))
		if read := err != nil && strings.Contains(err.Error(), f.Key); read != (f.Effect != "") {
			t.Errorf("%s: Parse reads it: %v; its effect is %q", f.Key, read, f.Effect)
		}
	}
	for _, key := range istiod {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is no field", key)
		}
	}
	code, err := os.ReadFile("parse.go")
	must.Succeed(t, err)
	found := regexp.MustCompile(`"([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+|LABELS|ANNOTATIONS|NETWORK|GENERATOR)"`).FindAllSubmatch(code, -1)
	for _, m := range found {
		if !slices.Contains(keys, string(m[1])) {
			t.Errorf("%s is read and is no field", m[1])
		}
	}
	if len(found) < 20 {
		t.Errorf("parse.go has %d keys", len(found))
	}
}

// TestNotices checks that a proxy has a notice for each entry that asks for what it does not get, and for no other.
func TestNotices(t *testing.T) {
	for metadata, want := range map[string]string{
		`"IDLE_TIMEOUT":"4h","ENABLE_HBONE":"false","OWNER":"x"`:                         "",
		`"IDLE_TIMEOUT":"0s","ENABLE_SELF_DISCOVERY":"","credential":"false"`:            "",
		`"IDLE_TIMEOUT":"four hours"`:                                                    "IDLE_TIMEOUT",
		`"IDLE_TIMEOUT":"-4h","WORKLOAD_ENTRY":"vm"`:                                     "IDLE_TIMEOUT WORKLOAD_ENTRY",
		`"ENABLE_SELF_DISCOVERY":"true","ENABLE_HBONE":"true"`:                           "ENABLE_HBONE",
		`"credential":"true","file-credential":"true"`:                                   "credential file-credential",
		`"TLS_CLIENT_CERT_CHAIN":"/c","TLS_CLIENT_KEY":"/k","TLS_SERVER_ROOT_CERT":"/r"`: "",
		`"TLS_CLIENT_CERT_CHAIN":"/c","TLS_CLIENT_ROOT_CERT":"/r",` +
			`"TLS_SERVER_KEY":"/k"`: "TLS_CLIENT_CERT_CHAIN TLS_CLIENT_ROOT_CERT TLS_SERVER_KEY",
		`"TLS_CLIENT_KEY":"/k","TLS_SERVER_CERT_CHAIN":"/c","TLS_SERVER_ROOT_CERT":"/r"`:    "TLS_CLIENT_KEY TLS_SERVER_CERT_CHAIN",
		`"TLS_SERVER_CERT_CHAIN":"/c","TLS_SERVER_KEY":"/k","INTERCEPTION_MODE":"REDIRECT"`: "",
	} {
		p, err := Parse(decode(t, `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{`+metadata+`}}`))
		must.Succeed(t, err)
		var got []string
		for _, n := range p.Notices() {
			if got = append(got, n.Key); n.Value == "" || n.Fix == "" {
				t.Errorf("%s: %+v", metadata, n)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", metadata, got, want)
		}
	}
}
