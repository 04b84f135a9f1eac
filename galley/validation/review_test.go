package validation

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// A valid object of each kind and version is reviewed without a finding, and a mistyped field of it is a warning that
// names the field: an API server has dropped all that its CustomResourceDefinitions do not name. Where the object is
// for security, the warning says that it is not used. A field beside the spec of Istio's kinds is an error, as in
// istiod. Kinds of other projects are not known.
func TestReview(t *testing.T) {
	l := limits.Default()
	for _, k := range custom() {
		m := mistakes()[k]
		for _, version := range k.Versions {
			gvk := schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name}
			if findings, known := Review(l, gvk, stored(t, document(k, m.body))); !known || len(findings) > 0 {
				t.Errorf("%s: known %v, findings %v", gvk, known, findings)
			}
			findings, _ := Review(l, gvk, stored(t, document(k, strings.Replace(m.body, m.right+":", m.wrong+":", 1))))
			if len(findings) == 0 || HasErrors(findings[:1]) ||
				k.Security != strings.HasSuffix(findings[0].Message, unused) || !strings.Contains(findings[0].Field, m.wrong) {
				t.Errorf("%s with %s: findings %v", gvk, m.wrong, findings)
			}
			text := stored(t, document(k, m.body))
			findings, _ = Review(l, gvk, append(text[:len(text)-1], `,"_err":"x"}`...))
			if len(findings) != 1 || HasErrors(findings) != strings.HasSuffix(k.Group, "istio.io") || findings[0].Field != "_err" {
				t.Errorf("%s with a field beside the spec: findings %v", gvk, findings)
			}
		}
	}
	const hidden = "spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}, {route: [{destination: {host: a}}]}]}\n"
	routes := schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: "VirtualService"}
	if list, _ := Review(l, routes, stored(t, document(kinds.VirtualService, hidden))); len(list) != 1 || list[0].Field != "spec.http[1]" {
		t.Errorf("a route that is never reached: %v", list)
	}
	if _, known := Review(l, schema.GroupVersionKind{Group: "networking.istio.io", Version: "v7", Kind: "VirtualService"}, nil); known {
		t.Error("a version that there is not is known")
	}
}

// What is too large, too deep or no object is refused before anything of it is looked at, and a long host without
// looking for all of its parts.
func TestReviewIsBounded(t *testing.T) {
	l := limits.Default()
	gvk := schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: kinds.VirtualService.Name}
	long := strings.Repeat("a", l.ReviewObject/2)
	for name, text := range map[string]string{
		"bytes":  `{"spec":{"hosts":["` + strings.Repeat("a", l.ReviewObject) + `"]}}`,
		"values": `{"spec":{"http":[` + strings.Repeat("{},", 300_000) + `{}]}}`,
		"depth":  strings.Repeat(`{"spec":`, 10_001) + "1" + strings.Repeat("}", 10_001),
		"null":   "null",
		"empty":  "",
		"text":   "apiVersion: v1",
		"host":   `{"spec":{"hosts":["` + long + `"],"http":[{"route":[{"destination":{"host":"a"}}]}]}}`,
		"sni":    `{"spec":{"hosts":["a"],"tls":[{"match":[{"sniHosts":["` + long + `"]}],"route":[{"destination":{"host":"a"}}]}]}}`,
		"twice":  `{"metadata":{"name":"a"},"spec":{"hosts":["a"],"hosts":["b"]}}`,
	} {
		findings, known := Review(l, gvk, []byte(text))
		if !known || !HasErrors(findings) {
			t.Errorf("%s: known %v, findings %v", name, known, findings)
		}
	}
}

// TestReviewWarnings: reviews warn as Istio's webhook does of rules that deny connections, and of keys that a server
// leaves out.
func TestReviewWarnings(t *testing.T) {
	const private = `{"keys":[{"kty":"EC","crv":"P-256","x":"-hOZ08elhHQ-QaIaLCkciudGVUnH0Sv0z7ghplqie4c",` +
		`"y":"aBiMHCIRhLbV2d2kop_GanRmmBGSTXtFazATLbLr32g","d":"AAEC"},{"kty":"oct","k":"c2VjcmV0"}]}`
	jwks, err := json.Marshal(private)
	must.Succeed(t, err)
	for _, c := range []struct{ kind, spec, want string }{
		{"AuthorizationPolicy", `{"action":"DENY","rules":[{"to":[{"operation":{"methods":["POST"]}}]}]}`, "IST0133"},
		{"AuthorizationPolicy", `{"action":"DENY","rules":[{"from":[{"source":{"notRequestPrincipals":["*"]}}]}]}`, "IST0133"},
		{"AuthorizationPolicy", `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["a"]}}]}]}`, ""},
		{"AuthorizationPolicy", `{"action":"DENY","rules":[{"to":[{"operation":{"methods":["POST"],"ports":["80"]}}]}]}`, ""},
		{"AuthorizationPolicy", `{"action":"DENY","rules":[{"when":[{"key":"destination.port","values":["80"]}],` +
			`"to":[{"operation":{"methods":["POST"]}}]}]}`, ""},
		{"AuthorizationPolicy", `{"rules":[{"to":[{"operation":{"methods":["POST"]}}]}]}`, ""},
		{"AuthorizationPolicy", `{"action":"DENY","rules":[{}]}`, ""},
		{"RequestAuthentication", `{"jwtRules":[{"issuer":"i","jwks":` + string(jwks) + `}]}`, "KeysLeftOut Doubtful"},
	} {
		gvk := schema.GroupVersionKind{Group: "security.istio.io", Version: "v1", Kind: c.kind}
		findings, _ := Review(limits.Default(), gvk, []byte(`{"apiVersion":"security.istio.io/v1","kind":"`+c.kind+
			`","metadata":{"name":"a","namespace":"b"},"spec":`+c.spec+`}`))
		var codes []string
		for _, d := range findings {
			codes = append(codes, d.Code)
		}
		if got := strings.Join(codes, " "); got != c.want || HasErrors(findings) {
			t.Errorf("%s: %v, want %q", c.spec, findings, c.want)
		}
	}
}
