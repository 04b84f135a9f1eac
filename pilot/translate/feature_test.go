package translate_test

import (
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
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// tapKind is a kind that nothing but the feature in this file knows. Its spec is any message with a selector.
var tapKind = &kinds.Kind{Name: "Tap", Group: "test", Versions: []string{"v1"}, Plural: "taps", Istio: true}

// tap is all that it takes to add a policy: an HTTP filter for the workloads that a Tap selects.
func tap() *feature.Feature {
	return &feature.Feature{
		Name:  "tap",
		Kinds: []*kinds.Kind{tapKind},
		Half:  feature.InboundHalf,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			return feature.Policies(r, namespace, feature.Matches, tapKind)
		},
		Hooks: feature.Hooks{HTTPFilters: func(c feature.Chain) []*hcmv3.HttpFilter {
			var list []*hcmv3.HttpFilter
			for o := range c.Selection.Objects.All {
				list = append(list, envoy.HTTPFilter("test.tap."+o.Annotations["id"], envoy.Empty("type.googleapis.com/test.Tap")))
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

// TestFeatureIsOneLine: a feature that is added to the list adds its filter to the workloads that it selects, and
// changes nothing else. An edit of one of its objects reaches the proxies of the object's namespace alone.
func TestFeatureIsOneLine(t *testing.T) {
	const services = `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: tcp, port: 81}]}}
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
	w.builder = snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Kinds: catalog.Kinds(features)})
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
					found = append(found, typ+" "+n+" "+filter[:1])
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
		{tapObject("a", "web", "1"), map[string]string{"a/web": "lds virtualInbound 1"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapObject("a", "web", "2"), map[string]string{"a/web": "lds virtualInbound 2"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapObject("a", "api", "2"), map[string]string{"a/api": "lds virtualInbound 2"}, []string{"a/api", "a/gateway", "a/web"}},
		{tapObject("istio-system", "web", "3"), map[string]string{"a/api": "lds virtualInbound 2", "a/web": "lds virtualInbound 3", "b/web": "lds virtualInbound 3"}, []string{"a/api", "a/gateway", "a/web", "b/web"}},
	} {
		after := w.apply(step.change)
		tr.Prepare(after)
		var reached []string
		for name := range proxies {
			p := proxy(t, []byte(proxies[name]))
			if tr.NeedsReassign(after, p, tr.ResolveCohort(before, p), before.Revision) && !tr.ResolveCohort(before, p).UnknownWorkload {
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
			t.Errorf("%s %s reaches %v, want %v", step.change.Key, step.change.Object.Annotations, reached, step.reach)
		}
		before = after
	}
}
