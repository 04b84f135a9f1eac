package translate_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	securityv1 "istio.io/api/security/v1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// tapKind is a kind that nothing but the feature in this file knows. Its spec is any message with a selector. tapFact
// is the kind of facts that it needs, each a text.
var tapKind = &kinds.Kind{Name: "Tap", Group: "test", Versions: []string{"v1"}, Plural: "taps", Istio: true}

var tapFact = &kinds.Kind{Name: "TapFact"}

// tap is all that it takes to add a policy: an HTTP filter for the workloads that a Tap selects. The filter names
// the fact that the Tap needs, or says that it is missing.
func tap() *feature.Feature {
	return &feature.Feature{
		Name:  "tap",
		Kinds: []*kinds.Kind{tapKind},
		Part:  feature.InboundPart,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			return feature.Policies(r, namespace, feature.Matches, tapKind)
		},
		Facts: func(o *kinds.Object) []facts.Want {
			return []facts.Want{{Key: kinds.Key{Kind: tapFact, Name: o.Annotations["id"]}, Field: "metadata.annotations"}}
		},
		Hooks: feature.Hooks{HTTPFilters: func(c feature.Chain) []*hcmv3.HttpFilter {
			var list []*hcmv3.HttpFilter
			for o := range c.Selection.Objects.All {
				text, ok := facts.Value[string](c.Selection.Fact(kinds.Key{Kind: tapFact, Name: o.Annotations["id"]}))
				if !ok {
					text = "missing"
				}
				list = append(list, envoy.HTTPFilter("test.tap."+o.Annotations["id"]+"+"+text, envoy.Empty("type.googleapis.com/test.Tap")))
			}
			return list
		}},
	}
}

func tapObject(namespace, app, id string) kinds.Change {
	o := &kinds.Object{
		Key:         kinds.Key{Kind: tapKind, Namespace: namespace, Name: "tap"},
		Annotations: map[string]string{"id": id},
		Spec:        &securityv1.PeerAuthentication{Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": app}}},
	}
	return kinds.Change{Key: o.Key, Object: o}
}

func tapAnswer(name, text string) kinds.Change { return facts.Change(tapFact, name, &text) }

// TestFeatureIsOneLine: a feature that is added to the list adds its filter to the workloads that it selects, and
// changes nothing else. An edit of one of its objects reaches the proxies of the object's namespace alone. So does a
// fact that the object needs.
func TestFeatureIsOneLine(t *testing.T) {
	const services = `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: tcp, port: 81}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: b}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}}, spec: {}, status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: api-0, namespace: a, labels: {app: api}}, spec: {}, status: {phase: Running, podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: b, labels: {app: web}}, spec: {}, status: {phase: Running, podIP: 10.0.0.3}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw-0, namespace: a, labels: {app: gw}}, spec: {}, status: {phase: Running, podIP: 10.0.0.4}}
`
	proxies := map[string]string{
		"a/web":     `{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "web"}}}`,
		"a/api":     `{"id": "sidecar~10.0.0.2~api-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "api"}}}`,
		"b/web":     `{"id": "sidecar~10.0.0.3~web-0.b~b.svc.cluster.local", "metadata": {"LABELS": {"app": "web"}}}`,
		"a/gateway": `{"id": "router~10.0.0.4~gw-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "gw"}}}`,
	}
	features := append(catalog.Features(), tap())
	w := newWorld(t, mesh.Default())
	w.builder = snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Catalog: features})
	tr, plain := translate.New(translate.Options{Features: features, Idle: 1 << 20}), newTranslator(0)

	before := w.apply(objects(t, "services.yaml", []byte(services))...)
	tr.Prepare(before)
	type at struct {
		sets [2]envoy.Union
		tap  string
	}
	look := func(s *snapshot.Snapshot, name string) at {
		p := proxy(t, []byte(proxies[name]))
		c := tr.ResolveCohort(s, p)
		got, without := sent(t, tr, s, p), sent(t, plain, s, p)
		var found []string
		for typ, resources := range got {
			for n, r := range resources {
				if _, filter, ok := strings.Cut(string(r.Bytes()), "test.tap."); ok {
					found = append(found, typ+" "+n+" "+regexp.MustCompile(`^[\w+]*`).FindString(filter))
				} else if other := without[typ][n]; other == nil || other.Version != r.Version {
					t.Errorf("%s: %s %s differs, though nothing is added to it", name, typ, n)
				}
			}
		}
		slices.Sort(found)
		return at{[2]envoy.Union{tr.Wildcard(s, c, envoy.ClusterType), tr.Wildcard(s, c, envoy.ListenerType)}, strings.Join(found, ", ")}
	}
	for _, step := range []struct {
		change kinds.Change
		taps   map[string]string // by proxy
		reach  []string          // the proxies whose cohort may differ
	}{
		{tapObject("a", "web", "1"), map[string]string{"a/web": "lds virtualInbound 1+missing"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapObject("a", "web", "2"), map[string]string{"a/web": "lds virtualInbound 2+missing"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapAnswer("2", "x"), map[string]string{"a/web": "lds virtualInbound 2+x"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapAnswer("2", "x"), map[string]string{"a/web": "lds virtualInbound 2+x"}, nil},
		{tapAnswer("3", "x"), map[string]string{"a/web": "lds virtualInbound 2+x"}, nil}, // nobody needs it
		{tapAnswer("2", "y"), map[string]string{"a/web": "lds virtualInbound 2+y"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapObject("a", "api", "2"), map[string]string{"a/api": "lds virtualInbound 2+y"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapObject("istio-system", "web", "3"), map[string]string{"a/api": "lds virtualInbound 2+y",
			"a/web": "lds virtualInbound 3+missing", "b/web": "lds virtualInbound 3+missing"}, []string{"a/api", "a/gateway", "a/web", "b/web"}},
		{tapAnswer("3", "z"), map[string]string{"a/api": "lds virtualInbound 2+y", "a/web": "lds virtualInbound 3+z",
			"b/web": "lds virtualInbound 3+z"}, []string{"a/api", "a/gateway", "a/web", "b/web"}},
		{facts.Change[string](tapFact, "2", nil), map[string]string{"a/api": "lds virtualInbound 2+missing",
			"a/web": "lds virtualInbound 3+z", "b/web": "lds virtualInbound 3+z"}, []string{"a/api", "a/gateway", "a/web"}},
	} {
		after := w.apply(step.change)
		tr.Prepare(after)
		var reached []string
		for name := range proxies {
			p := proxy(t, []byte(proxies[name]))
			if after != before && tr.NeedsReassign(after, p, tr.ResolveCohort(before, p), before.Revision) &&
				!tr.ResolveCohort(before, p).UnknownWorkload {
				reached = append(reached, name)
			}
			was, is := look(before, name), look(after, name)
			if is.tap != step.taps[name] {
				t.Errorf("%s: %s, want %s", name, is.tap, step.taps[name])
			}
			if same := was.sets == is.sets; same != (was.tap == is.tap) {
				t.Errorf("%s: the same Sets: %v, filters %q and %q", name, same, was.tap, is.tap)
			}
		}
		slices.Sort(reached)
		if !slices.Equal(reached, step.reach) {
			t.Errorf("%s reaches %v, want %v", step.change.Key, reached, step.reach)
		}
		before = after
	}
}
