package validation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// quote returns a string as JSON.
func quote(t *testing.T, s string) string {
	t.Helper()
	text, err := json.Marshal(s)
	must.Succeed(t, err)
	return string(text)
}

// refusedEverywhere checks that an object is refused by a review, by a server that finds it stored, and in a file, each
// with an error in the field.
func refusedEverywhere(t *testing.T, name string, kind *kinds.Kind, spec, field string) {
	t.Helper()
	judge(t, kind, spec)
	l, gvk := limits.Default(), schema.GroupVersionKind{Group: kind.Group, Version: kind.Versions[0], Kind: kind.Name}
	object := []byte(withSpec(gvk, spec))
	review, _ := Review(l, gvk, object)
	for who, found := range map[string]Result{
		"review": {Documents: []Document{{Findings: review}}},
		"server": {Documents: []Document{Object(l, kind, object)}}, "file": Decode(l, "", object),
	} {
		if list := found.Findings(); !HasErrors(list) || !strings.HasPrefix(list[0].Field, field) {
			t.Errorf("%s: %s found %.300v, want an error in %s", name, who, list, field)
		}
	}
}

// TestHostileExpressions: a regular expression that costs too much to compile or to run is refused, wherever it stands
// and whoever checks it, and judging it takes little memory.
func TestHostileExpressions(t *testing.T) {
	histories.NoRace(t)
	fields := []struct {
		kind        *kinds.Kind
		spec, field string // with the expression as %s
	}{
		{kinds.VirtualService, `{"hosts":["a"],"http":[{"match":[{"uri":{"regex":%s}}],"route":[{"destination":{"host":"a"}}]}]}`,
			"spec.http[0].match[0].uri.regex"},
		{kinds.VirtualService, `{"hosts":["a"],"http":[{"match":[{"headers":{"b":{"regex":%s}}}],"route":[{"destination":{"host":"a"}}]}]}`,
			"spec.http[0].match[0].headers.b.regex"},
		{kinds.VirtualService, `{"hosts":["a"],"http":[{"rewrite":{"uriRegexRewrite":{"match":%s,"rewrite":"b"}},` +
			`"route":[{"destination":{"host":"a"}}]}]}`, "spec.http[0].rewrite.uriRegexRewrite.match"},
		{kinds.VirtualService, `{"hosts":["a"],"http":[{"corsPolicy":{"allowOrigins":[{"regex":%s}]},"route":[{"destination":{"host":"a"}}]}]}`,
			"spec.http[0].corsPolicy.allowOrigins[0].regex"},
		{kinds.EnvoyFilter, `{"configPatches":[{"applyTo":"CLUSTER","match":{"proxy":{"proxyVersion":%s}},"patch":{"operation":"REMOVE"}}]}`,
			"spec.configPatches[0].match.proxy.proxyVersion"},
	}
	for name, expression := range map[string]string{
		"nested":      strings.Repeat("(", 10_000) + strings.Repeat(")", 10_000),
		"repeats":     strings.Repeat("(x{1000})", 113),
		"multiplied":  "((((a{30}){30}){30}){30}){2}",
		"a megabyte":  strings.Repeat("a?", 1<<19),
		"not RE2":     `(a)\1`,
		"look ahead":  "(?=a)b",
		"not closed":  "a(b",
		"empty class": "[]",
	} {
		for i, f := range fields {
			if len(expression) > 1<<16 && i > 0 {
				break // one is enough of what takes long to read
			}
			refusedEverywhere(t, name, f.kind, strings.Replace(f.spec, "%s", quote(t, expression), 1), f.field)
		}
	}
}

// TestHostileHosts shows that texts that are not host names are refused in reviews, in files and in stored objects. A
// VirtualService with such a host is an error in a review. If it is stored, it is in force as it is written, with a
// warning, unless no request can name the host. Host names in an odd form are in force. So many hosts that each proxy
// would hold too much are refused.
func TestHostileHosts(t *testing.T) {
	histories.NoRace(t)
	const vs, se = `{"hosts":[%s],"gateways":["g"],` +
		`"http":[{"route":[{"destination":{"host":"a"}}]}]}`, `{"hosts":[%s],"ports":[{"number":80,"name":"http","protocol":"HTTP"}]}`
	const gw = `{"servers":[{"port":{"number":80,"name":"http","protocol":"HTTP"},"hosts":[%s]}]}`
	unnameable := []string{"a.com:80", "http://a.com", "a.\x00com", "a.\ncom", "a.\rcom"}
	for _, host := range unnameable {
		refusedEverywhere(t, host, kinds.VirtualService, strings.Replace(vs, "%s", quote(t, host), 1), "spec.hosts[0]")
	}
	odd := []string{"", "a b", "a_b.com", "-a.com", "a..com", "a*.com", "*.*.com", "**.com", "münchen.de", "a.com/b/c",
		strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 200) + "com"}
	for _, host := range append([]string{" a.com", "a.com ", "_a.com", "."}, odd...) {
		spec := strings.Replace(vs, "%s", quote(t, host), 1)
		review, _ := Review(limits.Default(), schema.GroupVersionKind{Group: kinds.VirtualService.Group, Version: "v1", Kind: "VirtualService"},
			[]byte(withSpec(schema.GroupVersionKind{Group: kinds.VirtualService.Group, Version: "v1", Kind: "VirtualService"}, spec)))
		if !HasErrors(review) || review[0].Field != "spec.hosts[0]" {
			t.Errorf("%q: a review found %v, want an error in spec.hosts[0]", host, review)
		}
		doc := Object(limits.Default(), kinds.VirtualService, []byte(withSpec(schema.GroupVersionKind{Kind: "VirtualService"}, spec)))
		if doc.Object == nil || len(doc.Findings) == 0 || doc.Findings[0].Field != "spec.hosts[0]" {
			t.Errorf("%q: want it in force with a finding in spec.hosts[0], found %v", host, doc.Findings)
		} else if got := doc.Object.Spec.(*networkingv1.VirtualService).GetHosts(); !slices.Equal(got, []string{host}) {
			t.Errorf("%q: the hosts in force are %q", host, got)
		}
	}
	for _, host := range append(odd, unnameable...) {
		refusedEverywhere(t, host, kinds.ServiceEntry, strings.Replace(se, "%s", quote(t, host), 1), "spec.hosts[0]")
		refusedEverywhere(t, host, kinds.Gateway, strings.Replace(gw, "%s", quote(t, host), 1), "spec.servers[0].hosts[0]")
	}
	for _, host := range []string{"a.com.", "A.Com", "*.com", "xn--mnchen-3ya.de"} {
		for kind, spec := range map[*kinds.Kind]string{kinds.VirtualService: vs, kinds.ServiceEntry: se, kinds.Gateway: gw} {
			spec = strings.Replace(spec, "%s", quote(t, host), 1)
			judge(t, kind, spec)
			if o := Object(limits.Default(), kind, []byte(withSpec(schema.GroupVersionKind{Kind: kind.Name}, spec))); o.Object == nil {
				t.Errorf("%s %s: not used: %v", kind.Name, host, o.Findings)
			}
		}
	}
	many := quote(t, "a.com") + strings.Repeat(`,"b.com"`, 9_999)
	refusedEverywhere(t, "10,000", kinds.VirtualService, strings.Replace(vs, "%s", many, 1), "spec")
	refusedEverywhere(t, "10,000", kinds.ServiceEntry, strings.Replace(se, "%s", many, 1), "spec")
	refusedEverywhere(t, "10,000", kinds.Gateway, strings.Replace(gw, "%s", many, 1), "spec")
}

// TestOwnHost: an endpoint that leads each caller to its own host is used, as Istio has it, and is a finding wherever
// it stands and whoever checks it.
func TestOwnHost(t *testing.T) {
	const ports = `"ports":[{"number":80,"name":"http","protocol":"HTTP"}]`
	fields := []struct {
		kind                *kinds.Kind
		spec, field, family string // with the address as %s; only of that family, or of any
	}{
		{kinds.ServiceEntry, `{"hosts":["a.com"],` + ports + `,"resolution":"STATIC","endpoints":[{"address":%s}]}`,
			"spec.endpoints[0].address", ""},
		{kinds.ServiceEntry, `{"hosts":["a.com"],` + ports + `,"resolution":"DNS","endpoints":[{"address":%s}]}`,
			"spec.endpoints[0].address", "name"},
		{kinds.ServiceEntry, `{"hosts":[%s],` + ports + `,"resolution":"DNS"}`, "spec.hosts[0]", "name"},
		{kinds.WorkloadEntry, `{"address":%s}`, "spec.address", ""},
		{kinds.Service, `{"type":"ExternalName","externalName":%s}`, "spec.externalName", "name"},
	}
	for address, family := range map[string]string{
		"127.0.0.1": "", "127.9.9.9": "", "::1": "", "::ffff:127.0.0.1": "", "0.0.0.0": "", "::": "", "169.254.1.1": "", "fe80::1": "",
		"localhost": "name", "LocalHost.": "name", "metadata.localhost": "name",
	} {
		for _, f := range fields {
			if f.family != family && (f.family != "" || f.kind == kinds.ServiceEntry) {
				continue
			}
			object := withSpec(schema.GroupVersionKind{Kind: f.kind.Name, Group: f.kind.Group, Version: f.kind.Versions[0]},
				strings.Replace(f.spec, "%s", quote(t, address), 1))
			review, _ := Review(limits.Default(),
				schema.GroupVersionKind{Group: f.kind.Group, Version: f.kind.Versions[0], Kind: f.kind.Name}, []byte(object))
			used := Object(limits.Default(), f.kind, []byte(object))
			file := Decode(limits.Default(), "", []byte(object))
			if used.Object == nil {
				t.Errorf("%s %s is not used: %v", f.kind.Name, address, used.Findings)
			}
			for who, list := range map[string][]diag.Diagnostic{"review": review, "object": used.Findings, "file": file.Findings()} {
				if !slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Code == "OwnHost" && d.Field == f.field }) {
					t.Errorf("%s %s: no finding of a %s at %s: %v", f.kind.Name, address, who, f.field, list)
				}
			}
		}
	}
	const slice = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",` +
		`"metadata":{"name":"a","namespace":"ns"},"addressType":"IPv4","endpoints":[{"addresses":["169.254.169.254"]}]}`
	if list := Decode(limits.Default(), "", []byte(slice)).Findings(); len(list) != 1 ||
		list[0].Code != "OwnHost" || list[0].Field != "endpoints[0].addresses[0]" {
		t.Errorf("of an EndpointSlice: %v", list)
	}
	entry := func(address, more string) (n int) {
		const format = `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a","namespace":"ns"},"spec":` +
			`{"hosts":["a.com"],"addresses":["%s"],` + ports + `,"resolution":"STATIC","endpoints":[{"address":"%s"}]%s}}`
		host, _, _ := strings.Cut(address, "/")
		return len(Decode(limits.Default(), "", fmt.Appendf(nil, format, address, host, more)).Findings())
	}
	for _, address := range []string{"169.254.169.254", "169.254.169.254/32", "169.254.170.2/32", "fd00:ec2::254/128"} {
		if entry(address, "") != 0 {
			t.Errorf("a finding about a cloud's metadata server at %s", address)
		}
	}
	if entry("169.254.169.254", `,"location":"MESH_INTERNAL"`) != 1 || entry("10.1.0.0/31", "") != 1 {
		t.Error("no finding about a metadata server inside the mesh, or about a range")
	}
	for _, address := range []string{"10.0.0.1", "fd00::1", "240.0.0.1", "localhost.example.com", "a.com"} {
		if why := ownHost(address); why != "" {
			t.Errorf("%s: %s", address, why)
		}
	}
}

// TestHostilePatches: patches of types that there are not are refused, and many or large ones are checked within
// bounds.
func TestHostilePatches(t *testing.T) {
	histories.NoRace(t)
	const patch = `{"applyTo":"HTTP_FILTER","patch":{"operation":"ADD",` +
		`"value":{"name":"a","typed_config":{"@type":"type.googleapis.com/%t","inlineCode":%s}}}}`
	lua := strings.Replace(patch, "%t", "envoy.extensions.filters.http.lua.v3.Lua", 1)
	one := func(patch, code string) string {
		return `{"configPatches":[` + strings.Replace(patch, "%s", code, 1) + `]}`
	}
	const field = "spec.configPatches[0].patch.value.typed_config"
	for _, name := range []string{"", "no.such.Type", "../../etc/passwd", "envoy.extensions.filters.http.lua.v2.Lua"} {
		refusedEverywhere(t, name, kinds.EnvoyFilter, one(strings.Replace(patch, "%t", name, 1), `"x"`), field)
	}
	refusedEverywhere(t, "a number", kinds.EnvoyFilter, one(lua, "5"), field)
	judge(t, kinds.EnvoyFilter, one(lua, quote(t, strings.Repeat("-", 1<<20))))
	judge(t, kinds.EnvoyFilter,
		`{"configPatches":[`+strings.Repeat(strings.Replace(lua, "%s", `"x"`, 1)+",", 4_999)+strings.Replace(lua, "%s", `"x"`, 1)+`]}`)
}
