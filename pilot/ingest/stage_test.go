package ingest

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// stagesOfTests returns the stages of a server.
func stagesOfTests() []derive.Stage {
	return catalog.Stages(catalog.StageOptions{Domain: "cluster.local", Namespace: "istio-system", Limits: limits.Default(),
		AlphaGatewayAPI: true})
}

// routes is a made-up stage: of each HTTPRoute it makes a VirtualService and a ServiceEntry for the first host.
func routes() derive.Stage {
	return derive.Whole("routes", []*kinds.Kind{kinds.HTTPRoute}, func(in derive.Objects) (d derive.Part) {
		for _, o := range in.List {
			hosts := o.Spec.(*gatewayv1.HTTPRoute).Spec.Hostnames
			d.Statuses = append(d.Statuses, &derive.Status{Of: o.Key, Value: map[string]any{"parents": len(hosts)}})
			if len(hosts) == 0 {
				d.Findings = append(d.Findings, diag.Diagnostic{Severity: diag.Warning, Code: "NoHost", Object: o.String()})
				continue
			}
			host := string(hosts[0])
			for kind, spec := range map[*kinds.Kind]any{
				kinds.VirtualService: &networkingv1.VirtualService{Hosts: []string{host}},
				kinds.ServiceEntry: &networkingv1.ServiceEntry{
					Hosts: []string{host}, Resolution: 2, Ports: []*networkingv1.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
				},
			} {
				key := kinds.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name}
				d.Objects = append(d.Objects, derive.Derived{Object: &kinds.Object{Key: key, Spec: spec}, Origin: o.Key})
			}
		}
		return d
	})
}

// rules is a stage behind it: of each VirtualService, whoever made it, it makes a DestinationRule for its host.
func rules() derive.Stage {
	return derive.Whole("rules", []*kinds.Kind{kinds.VirtualService}, func(in derive.Objects) (d derive.Part) {
		for _, o := range in.List {
			key := kinds.Key{Kind: kinds.DestinationRule, Namespace: o.Namespace, Name: o.Name}
			spec := &networkingv1.DestinationRule{Host: o.Spec.(*networkingv1.VirtualService).GetHosts()[0]}
			d.Objects = append(d.Objects, derive.Derived{Object: &kinds.Object{Key: key, Spec: spec}, Origin: o.Key})
		}
		return d
	})
}

func newDeriving() *World {
	o := Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"}
	return New(o, Parts{Catalog: supported{catalog.Features()}, Stages: []derive.Stage{routes(), rules()}})
}

// supported is a Catalog in which every field of an object has an effect.
type supported struct{ catalog.List }

func (supported) Unsupported(*kinds.Object) []diag.Diagnostic { return nil }

func httpRoute(name string, hosts ...gatewayv1.Hostname) *kinds.Object {
	key := kinds.Key{Kind: kinds.HTTPRoute, Namespace: "a", Name: name}
	return &kinds.Object{Key: key, Spec: &gatewayv1.HTTPRoute{Spec: gatewayv1.HTTPRouteSpec{Hostnames: hosts}}}
}

func virtual(name, host string) *kinds.Object {
	key := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: name}
	return &kinds.Object{Key: key, Spec: &networkingv1.VirtualService{Hosts: []string{host}}}
}

// held returns what a Snapshot has of the kinds that the stages make, and its services.
func held(w *World) []string {
	var out []string
	for _, o := range w.Snapshot().AllObjects(kinds.VirtualService) {
		out = append(out, o.String()+" of "+o.Spec.(*networkingv1.VirtualService).GetHosts()[0])
	}
	for _, o := range w.Snapshot().AllObjects(kinds.DestinationRule) {
		out = append(out, o.String()+" of "+o.Spec.(*networkingv1.DestinationRule).GetHost())
	}
	for _, s := range w.Snapshot().Services() {
		out = append(out, "service "+s.Host)
	}
	slices.Sort(out)
	return out
}

// Derived objects follow what they are made of, through registries and the Snapshot, and give way to a user's own.
func TestStages(t *testing.T) {
	s := testWorld{t, newDeriving()}
	remove := func(o *kinds.Object) { s.Commit([]kinds.Change{{Key: o.Key}}, time.Time{}) }
	want := func(list ...string) {
		t.Helper()
		if d := cmp.Diff(list, held(s.World)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	found := func(list ...string) {
		t.Helper()
		var got []string
		for _, d := range s.Findings() {
			got = append(got, d.Code+" "+d.Object)
		}
		if d := cmp.Diff(list, got); d != "" {
			t.Errorf("findings (-want +got):\n%s", d)
		}
	}
	all := func(host string) []string {
		return []string{"DestinationRule a/web of " + host, "VirtualService a/web of " + host, "service " + host}
	}
	s.apply(httpRoute("web", "one.example"))
	want(all("one.example")...)
	for _, d := range s.Derived() {
		if origin := d.Origin.String(); origin != "HTTPRoute a/web" && origin != "VirtualService a/web" {
			t.Errorf("%s is of %s", d.Object, origin)
		}
	}
	if len(s.Derived()) != 3 {
		t.Errorf("%d objects are derived", len(s.Derived()))
	}
	rule := s.Object(kinds.Key{Kind: kinds.DestinationRule, Namespace: "a", Name: "web"})
	if got := s.ObjectsOf(kinds.DestinationRule); rule == nil || !slices.Equal(got, []*kinds.Object{rule}) {
		t.Errorf("objects %v; want %v", got, rule)
	}
	if got := s.Objects(); len(got) != 4 || !slices.Contains(got, rule) {
		t.Errorf("objects %v", got)
	}

	// What is derived anew and is the same keeps its pointer, and makes no Snapshot.
	first, before := s.Snapshot(), s.Derived()
	o := httpRoute("web", "one.example", "two.example")
	s.apply(o)
	if s.Snapshot() != first {
		t.Errorf("a Snapshot of %v", s.Snapshot().Diff.Causes)
	}
	if !slices.Equal(s.Derived(), before) {
		t.Error("equal objects have other pointers")
	}
	if list := s.Statuses(); len(list) != 1 || list[0].Of != o.Key || list[0].Value["parents"] != 2 {
		t.Errorf("statuses %v", list)
	}
	s.apply(httpRoute("web", "three.example"))
	want(all("three.example")...)

	// Registries that are made again hold it still.
	s.apply(configMap("istio", map[string]string{"mesh": "trustDomain: other"}))
	want(all("three.example")...)

	// A user's object counts in its place, also for the stage behind.
	own := virtual("web", "own.example")
	s.apply(own)
	want("DestinationRule a/web of own.example", "VirtualService a/web of own.example", "service three.example")
	if got := s.ObjectsOf(kinds.VirtualService); !slices.Equal(got, []*kinds.Object{own}) || s.Object(own.Key) != own {
		t.Errorf("objects %v", got)
	}
	found("HiddenObject HTTPRoute a/web")
	remove(own)
	want(all("three.example")...)
	found()

	// The filter is before the stages.
	s.apply(configMap("istio", map[string]string{"mesh": "discoverySelectors: [{matchLabels: {kubernetes.io/metadata.name: b}}]"}))
	want()
	s.apply(configMap("istio", map[string]string{"mesh": ""}))
	want(all("three.example")...)

	s.apply(httpRoute("web"))
	want()
	found("NoHost HTTPRoute a/web")
	remove(o)
	found()
}

// However changes are batched, what is derived is what is derived of all objects at once.
func TestStagesHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() *kinds.Object {
			name, host := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), rapid.SampledFrom(
				[]string{"one.example", "two.example"},
			).Draw(t, "host")
			return rapid.SampledFrom([]*kinds.Object{
				httpRoute(name, gatewayv1.Hostname(host)), httpRoute(name), virtual(name, host),
				{Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: "a", Name: name}, Spec: &networkingv1.DestinationRule{Host: "own." + host}},
				configMap("istio", map[string]string{"mesh": "trustDomain: " + host}),
				configMap("istio", map[string]string{"mesh": "discoverySelectors: [{matchLabels: {mesh: 'yes'}}]"}),
				{Key: kinds.Key{Kind: kinds.Namespace, Name: "a"}, Labels: map[string]string{"mesh": host[:1]}, Spec: &corev1.Namespace{}},
				{Key: kinds.Key{Kind: kinds.Namespace, Name: "a"}, Labels: map[string]string{"mesh": "yes"}, Spec: &corev1.Namespace{}},
			}).Draw(t, "object")
		}
		commitRandomly(t, 12, 3, newDeriving, draw, func(w, once *World, present map[kinds.Key]*kinds.Object) {
			if d := cmp.Diff(held(once), held(w)); d != "" {
				t.Fatalf("-at once +in commits:\n%s\nof %s", d, strings.ReplaceAll(fmt.Sprint(present), "\n", " "))
			}
		})
	})
}

// commitRandomly makes up to so many commits, each of up to so many changes of objects that draw returns, which come or
// go. After each commit it calls check, with a World that was given all that is present at once.
func commitRandomly(
	t *rapid.T, commits, changes int, empty func() *World, draw func() *kinds.Object,
	check func(w, once *World, present map[kinds.Key]*kinds.Object),
) {
	w, present := empty(), map[kinds.Key]*kinds.Object{}
	commit := func(w *World, of map[kinds.Key]*kinds.Object) {
		list := make([]kinds.Change, 0, len(of))
		for key, o := range of {
			list = append(list, kinds.Change{Key: key, Object: o})
		}
		config.Sort(list)
		w.Commit(list, time.Time{})
	}
	for range rapid.IntRange(1, commits).Draw(t, "commits") {
		batch := map[kinds.Key]*kinds.Object{}
		for range rapid.IntRange(1, changes).Draw(t, "changes") {
			o := draw()
			if batch[o.Key] = o; rapid.IntRange(0, 2).Draw(t, "gone") == 0 {
				batch[o.Key] = nil
			}
		}
		for key, o := range batch {
			if present[key] = o; o == nil {
				delete(present, key)
			}
		}
		commit(w, batch)
		once := empty()
		commit(once, present)
		check(w, once, present)
	}
}

// TestLookups: a stage runs again when the mesh configuration changes, or an object that it looked up or selected, or
// might have. No other change has it run.
func TestLookups(t *testing.T) {
	runs := 0
	service := kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "web"}
	stage := derive.Whole("counted", []*kinds.Kind{kinds.HTTPRoute}, func(in derive.Objects) (d derive.Part) {
		runs++
		found := in.Get(service) != nil
		pods := in.Select(kinds.Pod, "a", map[string]string{"app": "web"})
		d.Statuses = []*derive.Status{
			{Of: service, Value: map[string]any{"found": found, "pods": len(pods), "mode": in.Mesh.GetIngressControllerMode().String()}},
		}
		return d
	})
	s := testWorld{t, New(
		Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"},
		Parts{Catalog: supported{catalog.Features()}, Stages: []derive.Stage{stage}},
	)}
	check := func(what string, ran int, found bool, pods int, mode string) {
		t.Helper()
		want := map[string]any{"found": found, "pods": pods, "mode": mode}
		if list := s.Statuses(); runs != ran || len(list) != 1 || !maps.Equal(list[0].Value, want) {
			t.Errorf("%s: %d runs and %v, want %d and %v", what, runs, list, ran, want)
		}
	}
	pod := func(namespace, name, app string) *kinds.Object {
		return &kinds.Object{
			Key: kinds.Key{Kind: kinds.Pod, Namespace: namespace, Name: name}, Labels: map[string]string{"app": app}, Spec: &corev1.Pod{},
		}
	}
	remove := func(o *kinds.Object) { s.Commit([]kinds.Change{{Key: o.Key}}, time.Time{}) }
	s.apply(httpRoute("web"))
	check("first", 1, false, 0, "STRICT")
	other := &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "other"}, Spec: &corev1.Service{}}
	s.apply(other, pod("a", "x", "other"), pod("b", "x", "web"))
	check("others", 1, false, 0, "STRICT")
	s.apply(&kinds.Object{Key: service, Spec: &corev1.Service{}})
	check("the Service comes", 2, true, 0, "STRICT")
	s.apply(pod("a", "y", "web"))
	check("a Pod comes", 3, true, 1, "STRICT")
	s.apply(pod("a", "y", "other"))
	check("its labels change", 4, true, 0, "STRICT")
	s.apply(pod("a", "y", "web"))
	remove(pod("a", "y", "web"))
	check("it comes and goes", 6, true, 0, "STRICT")
	s.apply(configMap("istio", map[string]string{"mesh": "ingressControllerMode: DEFAULT"}))
	check("the mesh configuration changes", 7, true, 0, "DEFAULT")
	remove(&kinds.Object{Key: service})
	check("the Service goes", 8, false, 0, "DEFAULT")
}

// TestStagePanics: a stage that panics costs no other change, its last objects count, and a finding says so. It runs
// again when its input changes, and at once where only what it kept was at fault.
func TestStagePanics(t *testing.T) {
	broken, once, runs := false, false, 0
	list := []derive.Stage{routes(), rules()}
	derives := list[0].Derive
	list[0].Derive = func(in derive.Input) derive.Derivation {
		runs++
		if once && !in.Anew || broken {
			panic("broken")
		}
		return derives(in)
	}
	o := Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"}
	s := testWorld{t, New(o, Parts{Catalog: supported{catalog.Features()}, Stages: list})}
	check := func(host, findings string, more ...string) {
		t.Helper()
		want := append([]string{"DestinationRule a/web of " + host, "VirtualService a/web of " + host, "service " + host}, more...)
		slices.Sort(want)
		if d := cmp.Diff(want, held(s.World)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		var got string
		for _, d := range s.Findings() {
			got += d.Code
		}
		if got != findings {
			t.Errorf("findings %q, want %q", got, findings)
		}
	}
	s.apply(httpRoute("web", "one.example"))
	check("one.example", "")
	broken = true
	s.apply(httpRoute("web", "two.example"), virtual("other", "other.example"))
	check("one.example", "Internal", "VirtualService a/other of other.example", "DestinationRule a/other of other.example")
	before := runs
	broken = false
	s.Commit([]kinds.Change{{Key: virtual("other", "").Key}}, time.Time{})
	if check("one.example", "Internal"); runs != before {
		t.Errorf("%d runs without a change that concerns the stage", runs-before)
	}
	s.apply(httpRoute("web", "three.example"))
	check("three.example", "")
	once = true // what it keeps is at fault
	s.apply(httpRoute("web", "four.example"))
	check("four.example", "")
}

// TestFindingsOfStagesAreBounded: one mistake that is made everywhere has a bounded number of findings, and one that
// counts the rest. Worse findings are all there.
func TestFindingsOfStagesAreBounded(t *testing.T) {
	list := []diag.Diagnostic{{Severity: diag.Error, Code: "A", Object: "z"}, {Severity: diag.Warning, Code: "B", Object: "z"}}
	for i := range mostFindings + 7 {
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "A", Object: fmt.Sprintf("o%04d", i)})
	}
	got := bounded(list)
	if last := got[len(got)-1]; len(got) != mostFindings+3 || !strings.HasPrefix(last.Message, "7 more findings") ||
		last.Severity != diag.Warning || !analysis.LeftOut(got) {
		t.Errorf("%d findings, the last: %v", len(got), last)
	}
	for _, one := range list[:2] {
		if !slices.Contains(got, one) {
			t.Errorf("%v is left out", one)
		}
	}
	if few := bounded(slices.Clone(got[:mostFindings])); len(few) != mostFindings || analysis.LeftOut(few) {
		t.Errorf("of %d findings there are %d", mostFindings, len(few))
	}
}

// TestFindingsOfDerivedObjects: what is wrong with a derived object is a finding about what it was made of.
func TestFindingsOfDerivedObjects(t *testing.T) {
	const text = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: a, annotations: {kubernetes.io/ingress.class: istio}}
spec:
  tls: [{hosts: [web.example.com], secretName: web}]
  rules: [{host: web.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
`
	o := Options{
		Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local", ConfigDir: "somewhere",
		Limits: limits.Default(),
	}
	s := testWorld{t, New(o, Parts{Catalog: catalog.Features(), Stages: stagesOfTests()})}
	for _, d := range validation.Decode(limits.Default(), "x.yaml", []byte(text)).Documents {
		s.apply(d.Object)
	}
	if len(s.Derived()) != 2 {
		t.Errorf("%v is derived", s.Derived())
	}
	var got []string
	for _, d := range append(s.Analyze(), s.Findings()...) {
		got = append(got, d.Code+" "+d.Object+" "+d.Field)
	}
	slices.Sort(got)
	want := []string{
		"IST0101 Ingress a/web ", "Ingress Ingress a/web spec.rules[0].http.paths[0].backend.service.name",
		"IngressService MeshConfig ingressService",
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
}

// TestStageSecrets: the Secrets and ConfigMaps that stages look up are read of the cluster, with those that proxies
// want.
func TestStageSecrets(t *testing.T) {
	stage := derive.Whole("secrets", []*kinds.Kind{kinds.HTTPRoute}, func(in derive.Objects) (d derive.Part) {
		for _, o := range in.List {
			in.Get(kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: o.Name})
			in.Get(kinds.Key{Kind: kinds.ConfigMap, Namespace: "a", Name: o.Name})
			in.Get(kinds.Key{Kind: kinds.Service, Namespace: "a", Name: o.Name})
		}
		return d
	})
	w := New(
		Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"},
		Parts{Catalog: supported{catalog.Features()}, Stages: []derive.Stage{stage}},
	)
	demand := NewSecretDemand(w, &Sources{})
	check := func(want ...string) {
		t.Helper()
		demand.Committed(nil)
		var got []string
		for _, k := range demand.wanted {
			got = append(got, k.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v are read, want %v", got, want)
		}
	}
	s := testWorld{t, w}
	s.apply(httpRoute("one"))
	check("ConfigMap a/one", "Secret a/one")
	s.apply(httpRoute("two"))
	check("ConfigMap a/one", "ConfigMap a/two", "Secret a/one", "Secret a/two")
	s.Commit([]kinds.Change{{Key: httpRoute("one").Key}}, time.Time{})
	check("ConfigMap a/two", "Secret a/two")
}
