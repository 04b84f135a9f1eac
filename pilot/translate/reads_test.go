package translate_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
)

// selectingStep is a generated step with what selects workloads, and with the workloads.
type selectingStep struct {
	generatedStep
	facts     []kinds.Change
	workloads map[registry.WorkloadKey]*registry.Workload
	roots     []string // nil: they stay
}

var webSelector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}

// generatedPatches returns an EnvoyFilter with a patch of each type of resources.
func generatedPatches(name string, labels map[string]string) *networkingv1alpha3.EnvoyFilter {
	e := &networkingv1alpha3.EnvoyFilter{}
	if labels != nil {
		e.WorkloadSelector = &networkingv1alpha3.WorkloadSelector{Labels: labels}
	}
	for to, value := range map[networkingv1alpha3.EnvoyFilter_ApplyTo]map[string]any{
		networkingv1alpha3.EnvoyFilter_CLUSTER:             {"altStatName": name},
		networkingv1alpha3.EnvoyFilter_LISTENER:            {"statPrefix": name},
		networkingv1alpha3.EnvoyFilter_ROUTE_CONFIGURATION: {"responseHeadersToRemove": []any{name}},
		networkingv1alpha3.EnvoyFilter_VIRTUAL_HOST:        {"requestHeadersToRemove": []any{name}},
	} {
		v, err := structpb.NewStruct(value)
		if err != nil {
			panic(err)
		}
		e.ConfigPatches = append(e.ConfigPatches, &networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch{
			ApplyTo: to, Patch: &networkingv1alpha3.EnvoyFilter_Patch{Operation: networkingv1alpha3.EnvoyFilter_Patch_MERGE, Value: v},
		})
	}
	return e
}

var selectingObjects = []struct {
	key   kinds.Key
	specs []any
}{
	{kinds.Key{Kind: kinds.PeerAuthentication, Namespace: "a", Name: "web"}, []any{
		&securityv1.PeerAuthentication{Selector: webSelector, Mtls: &securityv1beta1.PeerAuthentication_MutualTLS{Mode: 3}},
	}},
	{kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: "a", Name: "web"}, []any{
		&securityv1.AuthorizationPolicy{Selector: webSelector}, customPolicy,
	}},
	{kinds.Key{Kind: kinds.Telemetry, Namespace: "istio-system", Name: "web"}, []any{
		&telemetryv1.Telemetry{Tracing: []*telemetryv1.Tracing{{DisableSpanReporting: wrapperspb.Bool(true)}}},
	}},
	{kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "b", Name: "all"}, []any{&securityv1.RequestAuthentication{}}},
	{kinds.Key{Kind: kinds.EnvoyFilter, Namespace: "a", Name: "web"},
		[]any{generatedPatches("x", map[string]string{"app": "web"}), generatedPatches("y", nil)}},
	{kinds.Key{Kind: kinds.EnvoyFilter, Namespace: "istio-system", Name: "all"}, []any{generatedPatches("z", nil)}},
	{kinds.Key{Kind: kinds.WasmPlugin, Namespace: "a", Name: "web"}, []any{
		&extensionsv1alpha1.WasmPlugin{Selector: webSelector, Url: "oci://example.com/x"},
		&extensionsv1alpha1.WasmPlugin{Url: "oci://example.com/y", Type: extensionsv1alpha1.PluginType_NETWORK},
	}},
	{kinds.Key{Kind: kinds.TrafficExtension, Namespace: "istio-system", Name: "web"}, []any{
		&extensionsv1alpha1.TrafficExtension{
			FilterConfig: &extensionsv1alpha1.TrafficExtension_Lua{Lua: &extensionsv1alpha1.LuaConfig{InlineCode: "x"}},
		},
		&extensionsv1alpha1.TrafficExtension{
			FilterConfig: &extensionsv1alpha1.TrafficExtension_Wasm{Wasm: &extensionsv1alpha1.WasmConfig{Url: "oci://example.com/z"}},
			Phase:        extensionsv1alpha1.TrafficExtension_AUTHZ,
		},
	}},
	{kinds.Key{Kind: tapKind, Namespace: "a", Name: "web"}, []any{&securityv1.PeerAuthentication{}}},
	{kinds.Key{Kind: tapKind, Namespace: "istio-system", Name: "web"}, []any{&securityv1.PeerAuthentication{Selector: webSelector}}},
	{kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "web"}, []any{
		&networkingv1.Sidecar{WorkloadSelector: &networkingv1alpha3.WorkloadSelector{Labels: map[string]string{"app": "web"}}},
	}},
	{kinds.Key{Kind: kinds.SecretCredential, Namespace: "istio-system", Name: "one"}, generatedCredentials},
	{kinds.Key{Kind: kinds.SecretCredential, Namespace: "istio-system", Name: "one-cacert"}, generatedCredentials},
	{kinds.Key{Kind: kinds.ConfigMapCredential, Namespace: "istio-system", Name: "two"}, generatedCredentials},
	{kinds.Key{Kind: kinds.Sidecar, Namespace: "istio-system", Name: "default"}, []any{generatedSidecars[1], generatedSidecars[5]}},
	{kinds.Key{Kind: kinds.Gateway, Namespace: "b", Name: "web"}, []any{&networkingv1.Gateway{Selector: map[string]string{"app": "web"}}}},
}

// selectingWorlds returns generatedWorlds with workloads for the proxies, with what selects them, and with services
// that they serve, or prefer to call close by.
func selectingWorlds() *rapid.Generator[[]selectingStep] {
	worlds, proxies := generatedWorlds(), generatedProxies()
	return rapid.Custom(func(t *rapid.T) []selectingStep {
		var steps []selectingStep
		for i, g := range worlds.Draw(t, "steps") {
			s := selectingStep{generatedStep: g, workloads: map[registry.WorkloadKey]*registry.Workload{}}
			if n := rapid.IntRange(0, 3).Draw(t, "selecting"); i == 0 || n == 0 {
				for range max(n, 1) {
					o := one(t, selectingObjects)
					s.objects[o.key] = nil
					if !chance(t, 3) {
						s.objects[o.key] = &kinds.Object{Key: o.key, Created: time.Unix(2, 0), Spec: one(t, o.specs)}
					}
					if o.key.Kind == tapKind && s.objects[o.key] != nil {
						s.objects[o.key].Annotations = map[string]string{"id": one(t, []string{"1", "2"})}
					}
				}
			}
			if chance(t, 3) {
				s.facts = []kinds.Change{one(t, []kinds.Change{tapAnswer("1", "x"), tapAnswer("1", "y"), tapAnswer("2", "x"),
					facts.Change[string](tapFact, "1", nil)})}
			}
			if chance(t, 6) {
				s.roots = one(t, [][]string{{"x"}, {"x", "y"}})
			}
			for _, name := range slices.Sorted(maps.Keys(proxies)) {
				if i > 0 && !chance(t, 12) {
					continue
				}
				p := proxies[name]
				k := registry.WorkloadKey{Kind: kinds.Pod, Namespace: p.Namespace, Name: p.Name}
				s.workloads[k] = &registry.Workload{
					WorkloadKey: k, Addresses: p.IPs, Labels: one(t, []map[string]string{{"app": "web"}, {"app": "other"}}),
					NodeName: one(t, []string{"n1", "n2"}), Locality: registry.Locality{Region: one(t, []string{"r1", "r2"})},
				}
			}
			for _, k := range slices.SortedFunc(maps.Keys(s.services), compareServiceKeys) {
				if s.services[k] == nil || !chance(t, 6) {
					continue
				}
				svc := *s.services[k]
				switch rapid.IntRange(0, 2).Draw(t, "close") {
				case 0:
					svc.NodeLocal = true
				case 1:
					svc.TrafficDist = "PreferClose"
				}
				s.services[k] = &svc
			}
			for _, k := range slices.SortedFunc(maps.Keys(s.endpoints), compareServiceKeys) {
				if list := s.endpoints[k]; len(list) > 0 && chance(t, 4) {
					e := *list[0]
					e.Address = "10.9.0.1"
					s.endpoints[k] = append(slices.Clone(list), &e)
					slices.SortFunc(s.endpoints[k], registry.CompareEndpoints)
				}
			}
			steps = append(steps, s)
		}
		return steps
	})
}

func compareServiceKeys(a, b registry.ServiceKey) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Host, b.Host))
}

// missingDirty returns, for each of several lists of rules, which partition reads a row that a step changes, and is not
// dirty by those rules: it would stay as it was. It returns an empty string for a list that misses nothing.
func missingDirty(steps []selectingStep, t tb, lists ...[]scope.InvalidationRule) []string {
	meshes, proxies := generatedMeshes(), generatedProxies()
	features := append(catalog.Features(), tap())
	on := translate.New(translate.Options{Idle: 1 << 20, Features: features})
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: meshes[0], Catalog: features})
	refs := &references{seen: map[string][]string{}}
	hosts := slices.Compact(slices.Sorted(slices.Values(slices.Concat(generatedHosts, generatedVirtualServiceHosts))))
	missing := make([]string, len(lists))
	var last *snapshot.Snapshot
	for i, step := range steps {
		b.SetMesh(meshes[step.mesh])
		b.ApplyRegistry(registry.Changes{Services: step.services, Endpoints: step.endpoints, Workloads: step.workloads})
		var changes []kinds.Change
		for k, o := range step.objects {
			changes = append(changes, kinds.Change{Key: k, Object: o})
		}
		b.Apply(changes)
		b.ApplyFacts(step.facts)
		if step.roots != nil {
			b.SetRoots(step.roots)
		}
		from, s := last, b.Commit(time.Time{})
		if s == from {
			continue
		}
		on.Prepare(s)
		if last = s; from == nil {
			continue
		}
		read := ""
		traced := on.Traced(from, s, func(table string, row any) { read += fmt.Sprintf("\n%s: %v", table, row) })
		next := map[int]translate.Next{} // of the lists that have missed nothing yet
		for l := range lists {
			if missing[l] == "" {
				next[l] = on.Next(from, s, lists[l])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(proxies)) {
			if len(next) == 0 {
				return missing
			}
			routes := refs.config(t, on, from, proxies[name]).routeNames()
			for _, p := range on.Partitions(from, s, proxies[name], hosts, routes) {
				var stays []int
				for l, n := range next {
					if !p.Dirty(n) {
						stays = append(stays, l)
					}
				}
				if len(stays) == 0 {
					continue
				}
				read = ""
				if from.Mesh != s.Mesh { // everything reads it
					read = "\nthe mesh configuration"
				}
				if p.Generate(traced()); read == "" {
					continue
				}
				for _, l := range stays {
					missing[l] = fmt.Sprintf("step %d, %s: %s %q is not dirty, and reads what changed:%s", i, name, p.Type, p.Name, read)
					delete(next, l)
				}
			}
		}
	}
	return missing
}

// TestWhatIsReadMakesDirty shows that a partition is dirty when a commit changes a row that it read.
func TestWhatIsReadMakesDirty(t *testing.T) {
	histories.FewerWithRace(t)
	gen := selectingWorlds()
	rapid.Check(t, func(t *rapid.T) {
		if d := missingDirty(gen.Draw(t, "steps"), t, scope.InvalidationRules())[0]; d != "" {
			t.Fatal(d)
		}
	})
}

// importedAlias returns a world that generated ones seldom have: a Sidecar imports an alias because a VirtualService
// routes to it, and not otherwise. The alias is among the server names of a TLS listener.
func importedAlias() []selectingStep {
	service := func(namespace, alias string) (registry.ServiceKey, *registry.Service) {
		k := registry.ServiceKey{Namespace: namespace, Host: "web." + namespace + ".svc.cluster.local"}
		s := &registry.Service{
			Host: k.Host, Namespace: namespace, Name: "web", Created: time.Unix(1, 0), Resolution: registry.ClientSide,
			Ports: []registry.Port{{Name: "tls", Number: 443, Protocol: protocols.TLS}},
		}
		if alias != "" {
			s.Resolution, s.ExternalName = registry.Alias, alias
		}
		return k, s
	}
	object := func(kind *kinds.Kind, namespace string, spec any) map[kinds.Key]*kinds.Object {
		k := kinds.Key{Kind: kind, Namespace: namespace, Name: "web"}
		return map[kinds.Key]*kinds.Object{k: {Key: k, Created: time.Unix(1, 0), Spec: spec}}
	}
	target, web := service("b", "")
	alias, other := service("a", target.Host)
	services := map[registry.ServiceKey]*registry.Service{target: web, alias: other}
	sidecar := &networkingv1.Sidecar{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"b/*"}}}}
	routes := &networkingv1.VirtualService{Hosts: []string{"x.example.com"}, Http: []*networkingv1alpha3.HTTPRoute{{
		Route: []*networkingv1alpha3.HTTPRouteDestination{{Destination: &networkingv1alpha3.Destination{Host: alias.Host}}},
	}}}
	return []selectingStep{
		{generatedStep: generatedStep{services: services, objects: object(kinds.Sidecar, "a", sidecar)}},
		{generatedStep: generatedStep{objects: object(kinds.VirtualService, "b", routes)}},
	}
}

// servedFromElsewhere returns a world that generated ones seldom have: a workload of one namespace serves a service of
// another by its address, and a DestinationRule of that namespace comes.
func servedFromElsewhere() []selectingStep {
	k := registry.ServiceKey{Namespace: "b", Host: "web.b.svc.cluster.local"}
	service := &registry.Service{
		Host: k.Host, Namespace: "b", Name: "web", Created: time.Unix(1, 0), Resolution: registry.ClientSide,
		Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}},
	}
	rule := kinds.Key{Kind: kinds.DestinationRule, Namespace: "b", Name: "web"}
	w := registry.WorkloadKey{Kind: kinds.Pod, Namespace: "a", Name: "a-0"}
	return []selectingStep{
		{
			generatedStep: generatedStep{
				services: map[registry.ServiceKey]*registry.Service{k: service},
				endpoints: map[registry.ServiceKey][]*registry.Endpoint{k: {{Address: "10.9.0.1", Port: 8080, ServicePort: "http",
					Cluster: "Kubernetes"}}},
			},
			workloads: map[registry.WorkloadKey]*registry.Workload{w: {WorkloadKey: w, Addresses: []string{"10.9.0.1"},
				Labels: map[string]string{"app": "web"}}},
		},
		{generatedStep: generatedStep{objects: map[kinds.Key]*kinds.Object{rule: {Key: rule, Created: time.Unix(1, 0),
			Spec: &networkingv1.DestinationRule{Host: k.Host}}}}},
	}
}

// soonNoticed are the names of rules of invalidation without which one of the first worlds fails.
var soonNoticed = []string{
	"imports by routes", "destination rules", "rules of services found by address", "policies of whom proxies call",
	"selecting objects", "workloads that serve",
	"credentials of rules", "roots", "services", "workloads",
}

// TestEachRuleIsNeeded shows that TestWhatIsReadMakesDirty notices when a rule of invalidation is left out. Each world
// is tried for all rules whose absence no earlier world has noticed. `go test -short` tries this for some of the rules.
func TestEachRuleIsNeeded(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	left := map[string][]scope.InvalidationRule{} // all rules but one, by its name
	for i, r := range scope.InvalidationRules() {
		if !testing.Short() || slices.Contains(soonNoticed, r.Name) {
			left[r.Name] = slices.Delete(scope.InvalidationRules(), i, i+1)
		}
	}
	if testing.Short() && len(left) < len(soonNoticed) {
		t.Errorf("some of %q are no rules", soonNoticed)
	}
	gen := selectingWorlds()
	seldom := [][]selectingStep{importedAlias(), servedFromElsewhere()}
	for i := 0; i < 1000 && len(left) > 0; i++ {
		var steps []selectingStep
		if i < len(seldom) {
			steps = seldom[i]
		} else {
			steps = gen.Example(i - len(seldom))
		}
		names := slices.Sorted(maps.Keys(left))
		var lists [][]scope.InvalidationRule
		for _, name := range names {
			lists = append(lists, left[name])
		}
		for i, missed := range missingDirty(steps, t, lists...) {
			if missed != "" {
				delete(left, names[i])
			}
		}
	}
	for name := range left {
		t.Errorf("%s: no world fails without the rule", name)
	}
}

// TestEveryKindIsGenerated holds that the generated worlds have every kind that translations read, and that histories
// have two versions of an object of each.
func TestEveryKindIsGenerated(t *testing.T) {
	generated, versions := map[*kinds.Kind]bool{}, map[*kinds.Kind]int{}
	for _, k := range generatedKeys {
		generated[k.Kind] = true
	}
	for _, o := range selectingObjects {
		generated[o.key.Kind] = true
	}
	for k, list := range readPool(t).versions {
		versions[k.Kind] = max(versions[k.Kind], len(list))
	}
	for k, reach := range catalog.Features().Kinds() {
		if !generated[k] {
			t.Errorf("no generated world has a %s", k.Name)
		}
		if versions[k] < 2 && reach != snapshot.Subscribed { // which no source has
			t.Errorf("%d versions of a %s in the pool of the histories, want 2", versions[k], k.Name)
		}
	}
}
