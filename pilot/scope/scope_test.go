package scope_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

type world struct {
	t        *testing.T
	mesh     *mesh.Config
	services []*registry.Service
	objects  []*kinds.Object
}

// service adds a service with ports 80 and 90. Later ones are younger.
func (w *world) service(ns, host string, exportTo ...string) *registry.Service {
	s := &registry.Service{
		Host: host, Namespace: ns, Name: host, ExportTo: exportTo, Created: time.Unix(int64(len(w.services)+1), 0),
		Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}, {Name: "tcp", Number: 90, Protocol: protocols.TCP}},
	}
	w.services = append(w.services, s)
	return s
}

func (w *world) object(kind *kinds.Kind, ns, name, spec string) *kinds.Object {
	w.t.Helper()
	o := &kinds.Object{Key: kinds.Key{Kind: kind, Namespace: ns, Name: name}, Spec: kind.New()}
	must.Succeed(w.t, protojson.Unmarshal([]byte(spec), o.Spec.(proto.Message)))
	w.objects = append(w.objects, o)
	return o
}

func (w *world) index() *scope.Index {
	if w.mesh == nil {
		w.mesh = mesh.Default()
	}
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: w.mesh})
	c := registry.Changes{Services: map[registry.ServiceKey]*registry.Service{}}
	for _, s := range w.services {
		c.Services[s.Key()] = s
	}
	b.ApplyRegistry(c)
	for _, o := range w.objects {
		b.Apply([]kinds.Change{{Key: o.Key, Object: o}})
	}
	return scope.NewIndex(b.Commit(time.Time{}), nil)
}

// seen returns services as namespace/host, with their imported ports where some are not imported.
func seen(list func(func(scope.Service) bool)) string {
	var out []string
	for s := range list {
		name := s.Namespace + "/" + s.Host
		n := 0
		ports := ""
		for p := range s.ImportedPorts {
			n++
			ports += fmt.Sprintf(":%d", p.Number)
		}
		if n != len(s.Ports) {
			name += ports
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestExportTo(t *testing.T) {
	w := &world{t: t}
	w.service("a", "all")
	w.service("a", "star", "*")
	w.service("a", "own", ".")
	w.service("a", "b", "b")
	w.service("a", "none", "~")
	w.service("a", "both", "c", "b")
	w.service("a", "hidden", "~", ".", "*", "b") // "~" hides it, whatever comes beside
	x := w.index()
	for ns, want := range map[string]string{"a": "a/all a/star a/own", "b": "a/all a/star a/b a/both", "c": "a/all a/star a/both",
		"d": "a/all a/star"} {
		if got := seen(x.ScopeOf(ns, nil).Services); got != want {
			t.Errorf("%s sees %s, want %s", ns, got, want)
		}
	}
	w.mesh = mesh.Default()
	w.mesh.DefaultServiceExportTo = []string{"."}
	if got := seen(w.index().ScopeOf("b", nil).Services); got != "a/star a/b a/both" {
		t.Errorf("by default private: b sees %s", got)
	}
	w.mesh.DefaultServiceExportTo = []string{"~", "."}
	if got := seen(w.index().ScopeOf("a", nil).Services); got != "a/star a/own" {
		t.Errorf("by default hidden: a sees %s", got)
	}
}

// TestServiceOfHost checks that of several services with one host a proxy sees its own namespace's, or else the oldest
// visible one.
func TestServiceOfHost(t *testing.T) {
	w := &world{t: t}
	w.service("a", "x.example.com", ".")
	w.service("b", "x.example.com")
	w.service("c", "x.example.com")
	x := w.index()
	for ns, want := range map[string]string{"a": "a/x.example.com", "b": "b/x.example.com", "c": "c/x.example.com", "d": "b/x.example.com"} {
		sc := x.ScopeOf(ns, nil)
		if got := seen(sc.Services); got != want || sc.ServiceByHost("x.example.com").Namespace != want[:1] {
			t.Errorf("%s sees %s, want %s", ns, got, want)
		}
	}
	if first, again := x.ScopeOf("a", nil), x.ScopeOf("a", nil); first != again {
		t.Error("a scope is worked out twice")
	}
}

func TestSidecarHosts(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"no egress", `{}`, "a/web.a b/web.b b/api.b c/x.example.com"},
		{"own", `{"egress":[{"hosts":["./*"]}]}`, "a/web.a"},
		{"one", `{"egress":[{"hosts":["b/web.b"]}]}`, "b/web.b"},
		{"any namespace", `{"egress":[{"hosts":["*/x.example.com"]}]}`, "c/x.example.com"},
		{"wildcard", `{"egress":[{"hosts":["*/*.example.com"]}]}`, "c/x.example.com"},
		{"upper case", `{"egress":[{"hosts":["b/API.b"]}]}`, "b/api.b"},
		{"wrong namespace", `{"egress":[{"hosts":["a/web.b"]}]}`, ""},
		{"nothing", `{"egress":[{"hosts":["~/*"]}]}`, ""},
		{"nothing beside others", `{"egress":[{"hosts":["~/*","./*","b/web.b"]}]}`, ""},
		{"all but one host", `{"egress":[{"hosts":["*/*","~/WEB.b"]}]}`, "a/web.a b/api.b c/x.example.com"},
		{"all but some hosts", `{"egress":[{"hosts":["~/*.b","*/*"]}]}`, "a/web.a c/x.example.com"},
		{"all but a namespace", `{"egress":[{"hosts":["*/*","~b/*"]}]}`, "a/web.a c/x.example.com"},
		{"all but a namespace's host", `{"egress":[{"hosts":["~b/web.b","~a/api.b","*/*"]}]}`, "a/web.a b/api.b c/x.example.com"},
		{"all but the own", `{"egress":[{"hosts":["~./*","*/*"]}]}`, "b/web.b b/api.b c/x.example.com"},
		{"all but any namespace's", `{"egress":[{"hosts":["~*/*.b","*/*"]}]}`, "a/web.a c/x.example.com"},
		{"exclusions alone", `{"egress":[{"hosts":["~b/*","~/web.a"]}]}`, ""},
		{"all excluded", `{"egress":[{"hosts":["./web.a","~/*"]}]}`, ""},
		{"excluded from one listener",
			`{"egress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"hosts":["b/*","~b/web.b"]},{"hosts":["b/web.b"]}]}`,
			"b/web.b b/api.b:80"},
		{"one port", `{"egress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"hosts":["b/*"]}]}`, "b/web.b:80 b/api.b:80"},
		{"a port that no service has", `{"egress":[{"port":{"number":81,"protocol":"HTTP","name":"h"},"hosts":["b/*"]}]}`, ""},
		{"two ports", `{"egress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"hosts":["b/web.b"]},` +
			`{"port":{"number":90,"protocol":"TCP","name":"t"},"hosts":["b/web.b"]}]}`, "b/web.b"},
		{"two listeners", `{"egress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"hosts":["b/web.b"]},{"hosts":["./*"]}]}`,
			"a/web.a b/web.b:80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t}
			w.service("a", "web.a")
			w.service("b", "web.b")
			w.service("b", "api.b")
			w.service("b", "hidden.b", ".")
			w.service("c", "x.example.com")
			o := w.object(kinds.Sidecar, "a", "default", c.spec)
			if got := seen(w.index().ScopeOf("a", o).Services); got != c.want {
				t.Errorf("sees %q, want %q", got, c.want)
			}
		})
	}
}

// TestDestinationsAreImported checks that the destinations of an imported VirtualService are imported, even if the
// Sidecar excludes their hosts.
func TestDestinationsAreImported(t *testing.T) {
	w := &world{t: t}
	w.service("a", "web.a.svc.cluster.local")
	w.service("b", "api.b.svc.cluster.local")
	w.service("b", "mirror.b.svc.cluster.local")
	w.service("b", "hidden.b.svc.cluster.local", ".")
	w.object(kinds.VirtualService, "b", "vs", `{"hosts":["shop.example.com"],`+
		`"http":[{"route":[{"destination":{"host":"api"}},{"destination":{"host":"hidden"}}],"mirror":{"host":"mirror"}}]}`)
	for name, hosts := range map[string]string{"all": `"*/shop.example.com"`, "out": `"*/shop.example.com","~b/*.svc.cluster.local"`} {
		o := w.object(kinds.Sidecar, "a", name, `{"egress":[{"hosts":[`+hosts+`]}]}`)
		sc := w.index().ScopeOf("a", o)
		if got, want := seen(sc.Services), "b/api.b.svc.cluster.local b/mirror.b.svc.cluster.local"; got != want {
			t.Errorf("%s: sees %q, want %q", name, got, want)
		}
		if n := len(slices.Collect(sc.Egress[0].VirtualServices)); n != 1 {
			t.Errorf("%s: %d VirtualServices", name, n)
		}
	}
}

// TestDestinationOfMany: how many VirtualServices route to a host does not count, where a listener with a port imports
// that port of it.
func TestDestinationOfMany(t *testing.T) {
	allocated := func(n int) float64 {
		w := &world{t: t}
		w.service("b", "api.b.svc.cluster.local")
		for i := range n {
			w.object(kinds.VirtualService, "b", fmt.Sprint("vs", i),
				fmt.Sprintf(`{"hosts":["x%d.example.com"],"http":[{"route":[{"destination":{"host":"api"}}]}]}`, i))
		}
		o := w.object(kinds.Sidecar, "a", "default",
			`{"egress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"hosts":["b/*.example.com"]}]}`)
		sc := w.index().ScopeOf("a", o)
		if got := seen(sc.Services); got != "b/api.b.svc.cluster.local:80" {
			t.Errorf("of %d it sees %q", n, got)
		}
		return testing.AllocsPerRun(10, func() { sc.Service("api.b.svc.cluster.local") })
	}
	if few, many := allocated(4), allocated(100); many > few {
		t.Errorf("one of 100 takes %v allocations, and one of 4 %v", many, few)
	}
}

func TestSidecarFor(t *testing.T) {
	w := &world{t: t}
	root := w.object(kinds.Sidecar, "istio-system", "default", `{}`)
	w.object(kinds.Sidecar, "istio-system", "picky", `{"workloadSelector":{"labels":{"app":"web"}}}`)
	own := w.object(kinds.Sidecar, "a", "b-default", `{}`)
	w.object(kinds.Sidecar, "a", "c-default", `{}`)
	selected := w.object(kinds.Sidecar, "a", "z-web", `{"workloadSelector":{"labels":{"app":"web"}}}`)
	w.object(kinds.Sidecar, "c", "a-default", `{}`)
	all := w.object(kinds.Sidecar, "c", "b-all", `{"workloadSelector":{}}`)
	w.object(kinds.Sidecar, "c", "c-web", `{"workloadSelector":{"labels":{"app":"web"}}}`)
	x := w.index()
	for _, c := range []struct {
		ns   string
		app  string
		want *kinds.Object
	}{{"a", "web", selected}, {"a", "api", own}, {"b", "web", root}, {"b", "api", root}, {"c", "web", all}, {"c", "api", all}} {
		if got := scope.SidecarFor(x, c.ns, registry.Labels{Own: map[string]string{"app": c.app, "x": "y"}}); got != c.want {
			t.Errorf("%s %s: %v", c.ns, c.app, got)
		}
	}
	if got := scope.SidecarFor((&world{t: t}).index(), "a", registry.Labels{}); got != nil {
		t.Errorf("without any: %v", got)
	}
}

func TestRulePrecedence(t *testing.T) {
	type rule struct{ ns, name, spec string }
	const host = "web.b.svc.cluster.local"
	for _, c := range []struct {
		name     string
		rules    []rule
		client   string
		selected string // name of the rules that select the workload
		want     string // names, in order
	}{
		{"none", nil, "a", "", ""},
		{"client's own first", []rule{{"a", "client", `{"host":"web.b.svc.cluster.local"}`}, {"b", "service", `{"host":"web"}`},
			{"istio-system", "root", `{"host":"*"}`}}, "a", "", "client"},
		{"then the service's", []rule{{"b", "service", `{"host":"web"}`}, {"istio-system", "root", `{"host":"web.b.svc.cluster.local"}`}},
			"a", "", "service"},
		{"then the root namespace's", []rule{{"c", "other", `{"host":"web.b.svc.cluster.local"}`},
			{"istio-system", "root", `{"host":"*.local"}`}}, "a", "", "root"},
		{"a short name is of its own namespace", []rule{{"a", "client", `{"host":"web"}`}}, "a", "", ""},
		{"a client's wildcard before the service's exact host",
			[]rule{{"a", "client", `{"host":"*.svc.cluster.local"}`}, {"b", "service", `{"host":"web"}`}}, "a", "", "client"},
		{"the root namespace's own clients", []rule{{"istio-system", "root", `{"host":"web.b.svc.cluster.local"}`},
			{"b", "service", `{"host":"web"}`}}, "istio-system", "", "service"},
		{"exact before wildcard", []rule{{"b", "a-wild", `{"host":"*.b.svc.cluster.local"}`}, {"b", "exact", `{"host":"web"}`}}, "a", "",
			"exact"},
		{"the longer wildcard", []rule{{"b", "a-short", `{"host":"*.local"}`}, {"b", "long", `{"host":"*.b.svc.cluster.local"}`},
			{"b", "z-any", `{"host":"*"}`}}, "a", "", "long"},
		{"one host twice is merged by age and name", []rule{{"b", "y", `{"host":"web.b.svc.cluster.local"}`},
			{"b", "x", `{"host":"web"}`}}, "a", "", "x y"},
		{"not exported", []rule{{"b", "service", `{"host":"web","exportTo":["."]}`}, {"istio-system", "root", `{"host":"*"}`}}, "a", "", "root"},
		{"exported to the client", []rule{{"b", "service", `{"host":"web","exportTo":["a"]}`}}, "a", "", "service"},
		{"not exported exact leaves the wildcard", []rule{{"b", "exact", `{"host":"web","exportTo":["c"]}`},
			{"b", "wild", `{"host":"*.b.svc.cluster.local"}`}}, "a", "", "wild"},
		{"a selector that matches", []rule{{"a", "all", `{"host":"web.b.svc.cluster.local"}`},
			{"a", "picky", `{"host":"web.b.svc.cluster.local","workloadSelector":{"matchLabels":{"app":"x"}}}`}}, "a", "picky", "picky"},
		{"a selector that does not", []rule{{"a", "all", `{"host":"web.b.svc.cluster.local"}`},
			{"a", "picky", `{"host":"web.b.svc.cluster.local","workloadSelector":{"matchLabels":{"app":"x"}}}`}}, "a", "", "all"},
		{"a selector in another namespace", []rule{{"b", "picky", `{"host":"web","workloadSelector":{"matchLabels":{"app":"x"}}}`}}, "a",
			"picky", ""},
		{"a selector without labels", []rule{{"a", "all", `{"host":"web.b.svc.cluster.local"}`},
			{"a", "picky", `{"host":"web.b.svc.cluster.local","workloadSelector":{}}`}}, "a", "picky", "picky"},
		{"a selector without labels in another namespace", []rule{{"b", "picky", `{"host":"web","workloadSelector":{}}`}}, "a", "picky", ""},
		{"a certificate counts beside them", []rule{{"a", "certified",
			`{"host":"web.b.svc.cluster.local","workloadSelector":{"matchLabels":{"app":"x"}}}`}, {"b", "service", `{"host":"web"}`}}, "a",
			"certified", "certified service"},
		{"a certificate alone", []rule{{"a", "certified",
			`{"host":"web.b.svc.cluster.local","workloadSelector":{"matchLabels":{"app":"x"}}}`}}, "a", "certified", "certified"},
		{"a certificate of others", []rule{{"a", "certified",
			`{"host":"web.b.svc.cluster.local","workloadSelector":{"matchLabels":{"app":"x"}}}`}, {"b", "service", `{"host":"web"}`}}, "a",
			"", "service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t}
			s := w.service("b", host)
			var selected []*kinds.Object
			for _, r := range c.rules {
				o := w.object(kinds.DestinationRule, r.ns, r.name, r.spec)
				if r.name == "certified" {
					o.Extra = &kinds.RuleExtra{ClientCertificate: "kubernetes://cert"}
				}
				if r.name == c.selected {
					selected = append(selected, o)
				}
			}
			var got []string
			for o := range w.index().DestinationRules(c.client, s, frozen.ListOf(selected...)).All {
				got = append(got, o.Name)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestVirtualServicesOfGateway checks which VirtualServices a Gateway has, in order.
func TestVirtualServicesOfGateway(t *testing.T) {
	w := &world{t: t}
	w.object(kinds.VirtualService, "a", "exact", `{"hosts":["q.example.com"],"gateways":["gw"]}`)
	w.object(kinds.VirtualService, "a", "one", `{"hosts":["x"],"gateways":["gw"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`)
	w.object(kinds.VirtualService, "a", "partial", `{"hosts":["*-q.example.com"],"gateways":["gw"]}`)
	w.object(kinds.VirtualService, "a", "pattern", `{"hosts":["*", "*.example.com"],"gateways":["gw"]}`)
	w.object(kinds.VirtualService, "b", "two", `{"hosts":["x"],"gateways":["a/gw","mesh"]}`)
	w.object(kinds.VirtualService, "b", "three", `{"hosts":["x"],"gateways":["a/gw"],"exportTo":["."]}`)
	w.object(kinds.VirtualService, "b", "four", `{"hosts":["x"]}`)
	w.object(kinds.VirtualService, "b", "nowhere", `{"hosts":["x"],"gateways":["a/gw","mesh"],"exportTo":["~",".","c"]}`)
	w.object(kinds.VirtualService, "b", "delegate", `{"gateways":["a/gw"]}`)
	x := w.index()
	name := func(list []*scope.VirtualService) (out []string) {
		for _, v := range list {
			out = append(out, v.Name)
		}
		return out
	}
	for _, c := range []struct {
		host, ns string
		want     []string
	}{
		{"x.svc.cluster.local", "istio-system", []string{"pattern"}},
		{"x.a.svc.cluster.local", "istio-system", []string{"one", "pattern"}},
		{"x.b.svc.cluster.local", "istio-system", []string{"pattern", "two"}},
		{"x.b.svc.cluster.local", "b", []string{"three", "pattern", "two"}},
		{"*.example.com", "b", []string{"pattern"}},
		{"*-a-q.example.com", "b", []string{"partial", "pattern"}},
		{"q.example.com", "b", []string{"exact", "pattern"}},
		{"a-q.example.com", "b", []string{"partial", "pattern"}},
	} {
		if got := name(x.VirtualServicesOfGateway("a/gw", c.host, c.ns)); !slices.Equal(got, c.want) {
			t.Errorf("%s in %s: %v, want %v", c.host, c.ns, got, c.want)
		}
	}
	for pattern, want := range map[string][]string{
		"*":              {"*", "*-q.example.com", "*.example.com", "q.example.com", "x.a.svc.cluster.local", "x.b.svc.cluster.local"},
		"*.example.com":  {"*-q.example.com", "*.example.com", "q.example.com"},
		"*q.example.com": {"*-q.example.com", "q.example.com"},
		"q.example.com":  {"q.example.com"},
		"*.example.org":  nil,
	} {
		if got := slices.Sorted(maps.Keys(maps.Collect(x.HostsOfGateway("a/gw", pattern, "istio-system")))); !slices.Equal(got, want) {
			t.Errorf("%s of a gateway: %v, want %v", pattern, got, want)
		}
	}
	if got := name(slices.Collect(x.GatewayVirtualServicesTo("web.a.svc.cluster.local"))); !slices.Equal(got, []string{"one"}) {
		t.Errorf("before web: %v", got)
	}
	if got := name(slices.Collect(x.ScopeOf("c", nil).Egress[0].VirtualServices)); !slices.Equal(got, []string{"four", "two"}) {
		t.Errorf("mesh: %v", got)
	}
}

// TestPatterns checks that a host is covered by patterns of whole labels, and by partial ones that some VirtualService
// of sidecars has.
func TestPatterns(t *testing.T) {
	w := &world{t: t}
	if got := slices.Collect(w.index().Patterns("x-a.example.com")); !slices.Equal(got,
		[]string{"x-a.example.com", "*.example.com", "*.com", "*"}) {
		t.Errorf("without VirtualServices: %v", got)
	}
	w.object(kinds.VirtualService, "a", "one", `{"hosts":["*-a.example.com","*le.com","*com","*x-a.example.com","*-b.example.com"]}`)
	w.object(kinds.VirtualService, "b", "two", `{"hosts":["*-a.example.com","*.example.com"]}`)
	w.object(kinds.VirtualService, "b", "gateway", `{"hosts":["*a.example.com"],"gateways":["gw"]}`)
	x := w.index()
	for host, want := range map[string]string{
		"x-a.example.com":   "x-a.example.com *x-a.example.com *-a.example.com *.example.com *le.com *.com *",
		"xx-a.example.com":  "xx-a.example.com *x-a.example.com *-a.example.com *.example.com *le.com *.com *",
		"*x-a.example.com":  "*x-a.example.com *-a.example.com *.example.com *le.com *.com *",
		"*.x-a.example.com": "*.x-a.example.com *x-a.example.com *-a.example.com *.example.com *le.com *.com *",
		"*.example.com":     "*.example.com *le.com *.com *",
		"com":               "com *",
		"*":                 "*",
	} {
		if got := strings.Join(slices.Collect(x.Patterns(host)), " "); got != want {
			t.Errorf("%s is covered by %s, want %s", host, got, want)
		}
	}
}

// TestDelegateKeepsItsPointer checks that a merged VirtualService is made anew only when one of its parts changes.
func TestDelegateKeepsItsPointer(t *testing.T) {
	w := &world{t: t}
	w.object(kinds.VirtualService, "a", "root", `{"hosts":["x"],"http":[{"delegate":{"name":"child"}}]}`)
	w.object(kinds.VirtualService, "a", "child", `{"http":[{"route":[{"destination":{"host":"web"}}]}]}`)
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	next := func(last *scope.Index, objects ...*kinds.Object) *scope.Index {
		for _, o := range objects {
			b.Apply([]kinds.Change{{Key: o.Key, Object: o}})
		}
		return scope.NewIndex(b.Commit(time.Time{}), last)
	}
	whole := func(x *scope.Index) *kinds.Object {
		return slices.Collect(x.ScopeOf("a", nil).Egress[0].VirtualServices)[0].Object
	}
	first := next(nil, w.objects...)
	second := next(first, w.object(kinds.VirtualService, "b", "z-other", `{"hosts":["y"]}`))
	if whole(first) != whole(second) || whole(second).Name != "root" {
		t.Error("it was made anew")
	}
	child := w.object(kinds.VirtualService, "a", "child", `{"http":[{"timeout":"1s","route":[{"destination":{"host":"web"}}]}]}`)
	if whole(next(second, child)) == whole(second) {
		t.Error("it was not made anew")
	}
}

func TestExcludedMatches(t *testing.T) {
	w := &world{t: t}
	w.object(kinds.VirtualService, "a", "v", `{"hosts":["x"],"http":[{"match":[{"sourceLabels":{"app":"web"}},`+
		`{"uri":{"prefix":"/"}},{"sourceLabels":{"app":"web","v":"1"}}]}],"tcp":[{"match":[{"sourceLabels":{"app":"api"}}]}]}`)
	w.object(kinds.VirtualService, "a", "w", `{"hosts":["x"],"http":[{"match":[{"uri":{"prefix":"/"}}]}]}`)
	x := w.index()
	sourced := slices.Collect(x.WithSourceLabels())
	if n := len(sourced); n != 1 {
		t.Fatalf("%d VirtualServices with source labels", n)
	}
	v := sourced[0].Spec
	for labels, want := range map[string]string{"web": "2 3 ", "api": "0 2 ", "": "0 2 3 "} {
		if got := scope.ExcludedMatches(v, registry.Labels{Own: map[string]string{"app": labels}}); got != want {
			t.Errorf("%s: %q, want %q", labels, got, want)
		}
	}
	if got := scope.ExcludedMatches(v, registry.Labels{Own: map[string]string{"app": "web", "v": "1"}}); got != "3 " {
		t.Errorf("%q", got)
	}
}

// TestClusterLocal checks that the most specific host in the mesh configuration decides, and overrides the built-in
// rules.
func TestClusterLocal(t *testing.T) {
	for settings, want := range map[string]string{
		"": "kubernetes.default dns.kube-system istiod.istio-system",
		"[{settings: {clusterLocal: true}, hosts: ['*.a.svc.cluster.local']}, {settings: {clusterLocal: false}, hosts: " +
			"[web.a.svc.cluster.local]}]": "kubernetes.default dns.kube-system istiod.istio-system api.a",
		"[{settings: {clusterLocal: false}, hosts: [web.a.svc.cluster.local]}, {settings: {clusterLocal: true}, hosts: " +
			"['*.a.svc.cluster.local']}]": "kubernetes.default dns.kube-system istiod.istio-system api.a",
		"[{settings: {clusterLocal: true}, hosts: ['*']}, {settings: {clusterLocal: false}, hosts: " +
			"['*.kube-system.svc.cluster.local']}]": "kubernetes.default istiod.istio-system web.a api.a",
		"[{settings: {clusterLocal: false}, hosts: ['*']}]": "kubernetes.default dns.kube-system istiod.istio-system",
		"[{hosts: [kubernetes.default.svc.cluster.local]}]": "dns.kube-system istiod.istio-system",
	} {
		m, found := mesh.ParseOver(mesh.Default(), "mesh", []byte("serviceSettings: "+settings))
		if m == nil || len(found) > 0 {
			t.Fatal(found)
		}
		x := scope.NewIndex(snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: m}).Commit(time.Time{}), nil)
		var got []string
		for _, host := range []string{"kubernetes.default", "dns.kube-system", "istiod.istio-system", "web.a", "api.a"} {
			if x.ClusterLocal(host + ".svc.cluster.local") {
				got = append(got, host)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", settings, got, want)
		}
	}
}
