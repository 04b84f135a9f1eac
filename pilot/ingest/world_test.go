package ingest

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/registry"
)

// testWorld is a World that a test changes by hand.
type testWorld struct {
	t *testing.T
	*World
}

func newTestWorld(t *testing.T, o Options) testWorld {
	o.Logger, o.Namespace, o.Domain = slog.New(slog.DiscardHandler), "istio-system", "cluster.local"
	return testWorld{t, New(o, Parts{Catalog: catalog.Features()})}
}

func (s testWorld) apply(objects ...*kinds.Object) {
	var batch []kinds.Change
	for _, o := range objects {
		batch = append(batch, kinds.Change{Key: o.Key, Object: o})
	}
	s.Commit(batch, time.Time{})
}

// services wants exactly these hosts, without the domain.
func (s testWorld) services(want ...string) {
	s.t.Helper()
	var got []string
	for _, svc := range s.Snapshot().Services() {
		got = append(got, strings.TrimSuffix(svc.Host, ".svc.cluster.local"))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		s.t.Errorf("services %v, want %v", got, want)
	}
}

func serviceIn(ns string) *kinds.Object {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: ns},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	return &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: ns, Name: "web"}, Spec: svc}
}

func namespaceWith(name string, labels map[string]string) *kinds.Object {
	return &kinds.Object{
		Key: kinds.Key{Kind: kinds.Namespace, Name: name}, Labels: labels,
		Spec: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
	}
}

// A write of a kind that no reader of Snapshots has makes no Snapshot.
func TestObjectsThatNobodyReadsMakeNoSnapshot(t *testing.T) {
	s := newTestWorld(t, Options{})
	s.apply(serviceIn("a"))
	first := s.Snapshot()
	secret := &corev1.Secret{Data: map[string][]byte{"key": []byte("value")}}
	for _, o := range []*kinds.Object{
		namespaceWith("a", map[string]string{"team": "blue"}),
		{Key: kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "web"}, Spec: secret},
		{Key: kinds.Key{Kind: kinds.GatewayClass, Name: "istio"}, Spec: &gatewayv1.GatewayClass{}},
		{Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "a", Name: "web"}, Spec: &gatewayv1.Gateway{}},
		{Key: kinds.Key{Kind: kinds.HTTPRoute, Namespace: "a", Name: "web"}, Spec: &gatewayv1.HTTPRoute{}},
		{Key: kinds.Key{Kind: kinds.ReferenceGrant, Namespace: "a", Name: "web"}, Spec: &gatewayv1.ReferenceGrant{}},
		configMap("other", map[string]string{"mesh": "trustDomain: other"}),
	} {
		s.apply(o)
		if s.Snapshot() != first {
			t.Errorf("%s makes a Snapshot: %v", o, s.Snapshot().Diff.Causes)
			first = s.Snapshot()
		}
		if s.Object(o.Key) != o {
			t.Errorf("%s is not known", o)
		}
		s.Commit([]kinds.Change{{Key: o.Key}}, time.Time{})
		if s.Snapshot() != first {
			t.Errorf("%s makes a Snapshot when it goes: %v", o, s.Snapshot().Diff.Causes)
			first = s.Snapshot()
		}
	}
}

func configMap(name string, data map[string]string) *kinds.Object {
	return &kinds.Object{
		Key:  kinds.Key{Kind: kinds.ConfigMap, Namespace: "istio-system", Name: name},
		Spec: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "istio-system"}, Data: data},
	}
}

func TestDiscoverySelectors(t *testing.T) {
	in := map[string]string{"mesh": "yes"}
	s := newTestWorld(t, Options{})
	s.apply(
		configMap("istio", map[string]string{"mesh": "discoverySelectors: [{matchLabels: {mesh: 'yes'}}]"}),
		namespaceWith("a", in), namespaceWith("b", nil), serviceIn("a"), serviceIn("b"), serviceIn("istio-system"),
	)
	s.services("web.a", "web.istio-system") // what holds for the whole mesh is never hidden

	s.apply(namespaceWith("b", in))
	s.services("web.a", "web.b", "web.istio-system")
	s.apply(namespaceWith("a", nil))
	s.services("web.b", "web.istio-system")
	s.apply(serviceIn("a"))
	s.services("web.b", "web.istio-system")

	s.apply(configMap("istio", map[string]string{"mesh": "discoverySelectors: [{matchExpressions: [{key: mesh, operator: Sometimes}]}]"}))
	s.services("web.b", "web.istio-system") // a wrong selector keeps the good ones
	if f := s.Findings(); len(f) != 2 || f[0].Field != "discoverySelectors[0]" || f[1].Code != "Unusable" {
		t.Errorf("findings %v", f)
	}
	s.apply(configMap("istio", map[string]string{"mesh": "discoverySelectors: [{matchLabels: {kubernetes.io/metadata.name: a}}]"}))
	s.services("web.a", "web.istio-system")
	s.apply(configMap("istio", map[string]string{"mesh": ""}))
	s.services("web.a", "web.b", "web.istio-system")
}

// TestServiceEntryVisibility checks that ServiceEntries are visible as the mesh configuration and the labels of their
// namespaces say, and that a change of either applies at once.
func TestServiceEntryVisibility(t *testing.T) {
	s := newTestWorld(t, Options{})
	spec := &networkingv1.ServiceEntry{Hosts: []string{"x.example"}, ExportTo: []string{"*"}}
	want := func(exportTo ...string) {
		t.Helper()
		if got := s.Snapshot().Services()[0].ExportTo; !slices.Equal(got, exportTo) {
			t.Errorf("exportTo %q, want %q", got, exportTo)
		}
	}
	s.apply(namespaceWith("a", nil), &kinds.Object{Key: kinds.Key{Kind: kinds.ServiceEntry, Namespace: "a", Name: "x"}, Spec: spec})
	want("*")
	const limits = "serviceEntryVisibility: {applyToSidecars: %v, defaultVisibility: NAMESPACE, policies: [{visibility: PUBLIC, " +
		"matchingRules: [{namespaceSelector: {matchLabels: {mesh: 'yes'}}}]}]}"
	s.apply(configMap("istio", map[string]string{"mesh": fmt.Sprintf(limits, true)}))
	want(".")
	s.apply(namespaceWith("a", map[string]string{"mesh": "yes"}))
	want("*")
	s.apply(namespaceWith("a", nil))
	want(".")
	s.apply(configMap("istio", map[string]string{"mesh": fmt.Sprintf(limits, true) + "\ndefaultServiceExportTo: ['~']"}))
	want(".")
	s.apply(configMap("istio", map[string]string{"mesh": fmt.Sprintf(limits, false)}))
	want("*")
	if f := s.Findings(); len(f) != 1 || f[0].Field != "serviceEntryVisibility" {
		t.Errorf("findings %v", f)
	}
}

func TestRevision(t *testing.T) {
	virtual := func(rev string) *kinds.Object {
		o := &kinds.Object{
			Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}, Spec: &networkingv1.VirtualService{Hosts: []string{"web"}},
		}
		if rev != "" {
			o.Labels = map[string]string{"istio.io/rev": rev}
		}
		return o
	}
	for _, x := range []struct {
		server, object string
		counts         bool
	}{
		{"", "", true}, {"", "default", true}, {"", "canary", false}, {"canary", "", true}, {"canary", "canary", true},
		{"canary", "default", false},
	} {
		s := newTestWorld(t, Options{Revision: x.server})
		s.apply(virtual(x.object))
		if got := s.Snapshot().Object(virtual("").Key) != nil; got != x.counts {
			t.Errorf("object of revision %q on a server of %q counts: %v", x.object, x.server, got)
		}
		s.apply(virtual("other"))
		if s.Snapshot().Object(virtual("").Key) != nil || len(s.Objects()) != 0 {
			t.Errorf("server of %q: an object that went to another revision still counts", x.server)
		}
		s.apply(virtual(x.object))
		if got := s.Snapshot().Object(virtual("").Key) != nil; got != x.counts {
			t.Errorf("object of revision %q that came back to a server of %q counts: %v", x.object, x.server, got)
		}
	}
}

func TestMeshLayers(t *testing.T) {
	s := newTestWorld(t, Options{Revision: "canary", SharedMesh: "shared"})
	s.apply(
		configMap("shared", map[string]string{"mesh": "trustDomain: shared.example\nprotocolDetectionTimeout: 3s"}),
		configMap("istio-canary", map[string]string{"mesh": "trustDomain: own.example"}),
		configMap("istio", map[string]string{"mesh": "trustDomain: another.revision"}),
	)
	want := func(trust string, seconds int64) {
		t.Helper()
		if m := s.Snapshot().Mesh; m.GetTrustDomain() != trust || m.GetProtocolDetectionTimeout().GetSeconds() != seconds {
			t.Errorf("trust domain %s, detection %s; want %s, %ds", m.GetTrustDomain(), m.GetProtocolDetectionTimeout().AsDuration(), trust, seconds)
		}
	}
	want("own.example", 3)
	s.apply(configMap("shared", map[string]string{"mesh": "protocolDetectionTimeout: 4s"}))
	want("own.example", 4)
	s.apply(configMap("istio-canary", map[string]string{"mesh": "trustDomain: [unclosed"}))
	want("own.example", 4)
	if len(s.Findings()) == 0 {
		t.Error("no finding for YAML that cannot be read")
	}
	// The other layer still changes meanwhile.
	s.apply(configMap("shared", map[string]string{"mesh": "protocolDetectionTimeout: 5s"}))
	want("own.example", 5)
	s.apply(configMap("istio-canary", map[string]string{"mesh": "trustDomain: mended.example"}))
	want("mended.example", 5)
	if f := s.Findings(); len(f) != 0 {
		t.Errorf("findings that do not go: %v", f)
	}
	s.Commit([]kinds.Change{{Key: configMap("shared", nil).Key}}, time.Time{})
	want("mended.example", 5)
	if f := s.Findings(); len(f) != 1 || !strings.Contains(f[0].Message, "ConfigMap istio-system/shared is missing") || f[0].Fix == "" {
		t.Errorf("the shared ConfigMap is gone: %v", f)
	}
}

// TestMissingSharedMesh: a ConfigMap that --sharedMeshConfig names keeps a server from starting if it does not exist,
// unless it is the server's own, which need not exist.
func TestMissingSharedMesh(t *testing.T) {
	for _, c := range []struct {
		shared   string
		unusable bool
	}{{"shared", true}, {"istio", false}, {"", false}} {
		o := configMap("istio", map[string]string{"mesh": "trustDomain: own.example"})
		for _, there := range []bool{true, false} {
			r := readMesh(Options{Namespace: "istio-system", SharedMesh: c.shared}, func(k kinds.Key) *kinds.Object {
				if there && k == o.Key {
					return o
				}
				return nil
			}, map[string]string{})
			if (r.unusable != "") != c.unusable || (len(r.findings) > 0) != c.unusable || (r.config == nil) != c.unusable {
				t.Errorf("shared %q, own %t: unusable %q, findings %v", c.shared, there, r.unusable, r.findings)
			}
		}
	}
}

// A field that does not exist keeps the last good content; where there is none, as after an upgrade and a restart, the
// rest is in force.
// TestUnsupportedMeshFieldsAreLocated: a finding stands where the field is written, in whichever of the texts.
func TestUnsupportedMeshFieldsAreLocated(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own.yaml")
	text := `apiVersion: v1
kind: ConfigMap
metadata: {name: istio-canary, namespace: istio-system}
data:
  mesh: |
    outboundTrafficPolicy:
      tls: {mode: SIMPLE}
    extensionProviders:
    - {name: prometheus, prometheus: {}}
    - {name: x, lightstep: {service: web, port: 80}}
`
	must.Succeed(t, os.WriteFile(own, []byte(text), 0o600))
	s := newTestWorld(t, Options{Revision: "canary", SharedMesh: "shared", Limits: limits.Default()})
	s.apply(
		configMap("shared", map[string]string{"mesh": "trustDomain: a.example\nca: {address: 'a:1'}\ndefaultConfig: {drainDuration: 5s}"}),
		validation.Decode(limits.Default(), own, []byte(text)).Documents[0].Object,
	)
	var got []string
	for _, d := range s.Findings() {
		got = append(got, fmt.Sprintf("%s:%d:%d %s %s", strings.TrimPrefix(d.File, dir+"/"), d.Line, d.Column, d.Field, d.Code))
	}
	slices.Sort(got)
	want := []string{
		"ConfigMap istio-system/shared, key mesh:2:5 ca NotImplemented",
		"own.yaml:10:17 extensionProviders[1].lightstep Deprecated",
		"own.yaml:10:28 extensionProviders[1].lightstep NotImplemented",
		"own.yaml:7:12 outboundTrafficPolicy.tls NotImplemented",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMeshWithUnknownFields(t *testing.T) {
	for _, c := range []struct{ before, trust, says string }{
		{"trustDomain: old.example", "old.example", "last good content"}, {"", "new.example", "the fields with errors are left out"},
	} {
		s := newTestWorld(t, Options{})
		if c.before != "" {
			s.apply(configMap("istio", map[string]string{"mesh": c.before}))
		}
		s.apply(configMap("istio", map[string]string{"mesh": "newerField: 1\ntrustDomain: new.example"}))
		if got := s.Snapshot().Mesh.GetTrustDomain(); got != c.trust {
			t.Errorf("trust domain %s, want %s", got, c.trust)
		}
		if f := s.Findings(); len(f) != 2 || !strings.Contains(f[1].Message, c.says) || f[1].Severity != diag.Error {
			t.Errorf("findings %v", f)
		}
	}
}

// A finding about a mesh configuration of a cluster names the line and column of the text.
func TestPositionsInConfigMaps(t *testing.T) {
	s := newTestWorld(t, Options{})
	s.apply(configMap("istio", map[string]string{"mesh": "\ntrustDomian: x"}))
	if d := s.Findings()[0].String(); !strings.HasPrefix(d, "ConfigMap istio-system/istio, key mesh:2:1: error: ") {
		t.Errorf("of a cluster: %s", d)
	}
}

// TestMeshInBinaryData shows that a mesh configuration or networks in binaryData of a ConfigMap are not passed over: a
// server that starts is not ready, and one that runs keeps the last good content.
func TestMeshInBinaryData(t *testing.T) {
	good := map[string]string{"mesh": "trustDomain: old.example", "meshNetworks": "networks: {n1: {endpoints: [{fromRegistry: Kubernetes}]}}"}
	for _, key := range []string{"mesh", "meshNetworks"} {
		s := newTestWorld(t, Options{})
		s.apply(configMap("istio", good))
		before := s.Snapshot()
		data := maps.Clone(good)
		delete(data, key)
		o := configMap("istio", data)
		o.Spec.(*corev1.ConfigMap).BinaryData = map[string][]byte{key: nil}
		s.apply(o)
		if after := s.Snapshot(); after.Mesh.GetTrustDomain() != "old.example" || !reflect.DeepEqual(after.Networks, before.Networks) {
			t.Errorf("%s: trust domain %s, networks %v", key, after.Mesh.GetTrustDomain(), after.Networks)
		}
		says := "istio has the key " + key + " in binaryData"
		if f := s.Findings(); len(f) != 1 || !strings.Contains(f[0].Message, says) || f[0].Severity != diag.Error {
			t.Errorf("%s: findings %v", key, f)
		}
		object := func(k kinds.Key) *kinds.Object {
			if k == o.Key {
				return o
			}
			return nil
		}
		r := readMesh(Options{Namespace: "istio-system"}, object, map[string]string{})
		n := readNetworks(layers(Options{Namespace: "istio-system"}, object, "meshNetworks"))
		if (r.unusable != "") != (key == "mesh") || (n.unusable != "") != (key == "meshNetworks") {
			t.Errorf("%s: at a start, the mesh configuration is unusable: %q, the networks: %q", key, r.unusable, n.unusable)
		}
	}
}

// TestMeshWithoutKey takes the key mesh from a ConfigMap that had it: the last good content stays in force. A ConfigMap
// that never had it, and has no networks either, keeps a server from starting.
func TestMeshWithoutKey(t *testing.T) {
	s := newTestWorld(t, Options{})
	s.apply(configMap("istio", map[string]string{"mesh": "trustDomain: old.example"}))
	for _, data := range []map[string]string{{"mesh.yaml": "trustDomain: new.example"}, {"meshNetworks": "networks: {}"}, nil} {
		s.apply(configMap("istio", data))
		if got := s.Snapshot().Mesh.GetTrustDomain(); got != "old.example" {
			t.Errorf("%v: trust domain %s", data, got)
		}
		if f := s.Findings(); len(f) != 1 || !strings.Contains(f[0].Message, "ConfigMap istio-system/istio has no key mesh") || f[0].Fix == "" {
			t.Errorf("%v: findings %v", data, f)
		}
	}
	for _, c := range []struct {
		data     map[string]string
		unusable bool
	}{{map[string]string{"mesh.yaml": ""}, true}, {nil, true}, {map[string]string{"meshNetworks": "networks: {}"}, false}} {
		o := configMap("istio", c.data)
		r := readMesh(Options{Namespace: "istio-system"}, func(k kinds.Key) *kinds.Object {
			if k == o.Key {
				return o
			}
			return nil
		}, map[string]string{})
		if (r.unusable != "") != c.unusable || (len(r.findings) > 0) != c.unusable {
			t.Errorf("%v: unusable %q, findings %v", c.data, r.unusable, r.findings)
		}
	}
}

// TestMeshFieldsWithoutEffect shows that a field of a mesh configuration is a finding if it is accepted and has no
// effect.
func TestMeshFieldsWithoutEffect(t *testing.T) {
	s := newTestWorld(t, Options{})
	s.apply(configMap("istio", map[string]string{
		"mesh":         "ca: {address: 'a:1'}\nhboneIdleTimeout: 5s",
		"meshNetworks": "networks: {n1: {endpoints: [{fromRegistry: Kubernetes}]}}",
	}))
	var fields []string
	for _, d := range s.Findings() {
		fields = append(fields, d.Field)
	}
	if got := strings.Join(fields, " "); got != "ca hboneIdleTimeout" { // of the networks all counts
		t.Errorf("findings about %s: %v", got, s.Findings())
	}
	s.apply(configMap("istio", map[string]string{"mesh": "trustDomain: a.b"}))
	if f := s.Findings(); len(f) != 0 {
		t.Errorf("findings that do not go: %v", f)
	}
}

// TestSalvagedMeshStays has a server start with a text of which a part is left out. It keeps that text when a worse one
// follows.
func TestSalvagedMeshStays(t *testing.T) {
	s := newTestWorld(t, Options{SharedMesh: "shared"})
	start := "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\nextensionProviders: [{name: a}]\n"
	s.apply(configMap("shared", map[string]string{"mesh": ""}), configMap("istio", map[string]string{"mesh": start}))
	closed := func() {
		t.Helper()
		if s.Snapshot().Mesh.AllowAny() || len(s.Findings()) == 0 {
			t.Errorf("%v", s.Findings())
		}
	}
	closed()
	s.apply(configMap("shared", map[string]string{"mesh": "connectTimeout: 3s"}))
	closed()
	if got := s.Snapshot().Mesh.GetConnectTimeout().GetSeconds(); got != 3 {
		t.Errorf("%d s", got)
	}
	s.apply(configMap("istio", map[string]string{"mesh": start + "enableAutoMtls: maybe\n"}))
	closed()
	s.apply(configMap("shared", map[string]string{"mesh": "trustDomain: [\n"}))
	closed()
}

func TestTraceSamplingOfTheEnvironment(t *testing.T) {
	s := newTestWorld(t, Options{TraceSampling: 7})
	sampling := func() float64 { return s.Snapshot().Mesh.GetDefaultConfig().GetTracing().GetSampling() }
	s.apply()
	if sampling() != 7 {
		t.Errorf("%v", sampling())
	}
	s.apply(configMap("istio", map[string]string{"mesh": "defaultConfig: {tracing: {sampling: 50}}"}))
	if sampling() != 50 {
		t.Errorf("%v", sampling())
	}
}

// A machine that another cluster knows is an endpoint of the Services that select it there, and of no other cluster's.
func TestMachinesOfRemoteClusters(t *testing.T) {
	s := newTestWorld(t, Options{ClusterID: "Kubernetes"})
	in := func(cluster string) *kinds.Object {
		o := serviceIn("a")
		o.Cluster = cluster
		o.Spec.(*corev1.Service).Spec.Selector = map[string]string{"app": "web"}
		return o
	}
	machine := &kinds.Object{
		Key: kinds.Key{Kind: kinds.WorkloadEntry, Namespace: "a", Name: "m", Cluster: "far"}, Labels: map[string]string{"app": "web"},
		Spec: &networkingv1.WorkloadEntry{Address: "10.9.0.1", Labels: map[string]string{"app": "web"}},
	}
	s.apply(in(""), in("far"), machine)
	got := s.Snapshot().Endpoints(registry.ServiceKey{Host: "web.a.svc.cluster.local", Namespace: "a"})
	if got == nil || len(got.List) != 1 || got.List[0].Cluster != "far" || got.List[0].Address != "10.9.0.1" {
		t.Errorf("endpoints %+v", got)
	}
}

// TestUnsupportedFieldsAreLocated: a finding about a field of a file stands where the field is written.
func TestUnsupportedFieldsAreLocated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rule.yaml")
	text := `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: x, namespace: a}
spec:
  host: web
  subsets:
    - name: v1
      trafficPolicy:
        outlierDetection:
          {interval: 1s, consecutiveErrors: 5}
`
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	s := newTestWorld(t, Options{Limits: limits.Default()})
	s.apply(validation.Decode(limits.Default(), file, []byte(text)).Documents[0].Object)
	var got []string
	for _, d := range s.Findings() {
		got = append(got, fmt.Sprintf("%d:%d %s %s", d.Line, d.Column, d.Field, d.Code))
	}
	want := []string{"10:45 spec.subsets[0].trafficPolicy.outlierDetection.consecutiveErrors NotImplemented"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Commit([]kinds.Change{{Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: "a", Name: "x"}}}, time.Time{})
	if got := s.Findings(); len(got) != 0 {
		t.Errorf("without the object: %v", got)
	}
}

// TestRoots: the roots that proxies trust are asked for with each mesh configuration and when they are said to have
// changed, and not with other changes.
func TestRoots(t *testing.T) {
	var asked []string
	now := []string{"own"}
	s := testWorld{t, New(Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"}, Parts{
		Catalog: catalog.Features(), Roots: func(m *mesh.Config) []string {
			asked = append(asked, m.GetTrustDomain())
			return now
		},
	})}
	check := func(what string, want ...string) {
		t.Helper()
		if got := slices.Collect(s.Snapshot().Roots().All); !slices.Equal(got, now) || !slices.Equal(asked, want) {
			t.Errorf("%s: roots %q, want %q; asked with %q, want %q", what, got, now, asked, want)
		}
		asked = nil
	}
	s.apply(serviceIn("a"))
	check("the first load", "cluster.local")
	s.apply(serviceIn("b"))
	check("a service")
	now = []string{"own", "second"}
	s.apply(configMap("istio", map[string]string{"mesh": "trustDomain: a.example"}))
	check("another mesh configuration", "a.example")
	now = []string{"next"}
	s.Commit([]kinds.Change{{Key: kinds.Key{Kind: kinds.Roots}}}, time.Time{})
	check("other roots", "a.example")
	before := s.Snapshot()
	s.Commit([]kinds.Change{{Key: kinds.Key{Kind: kinds.Roots}}}, time.Time{})
	if s.Snapshot() != before {
		t.Error("the same roots make another Snapshot")
	}
}

// TestStored: an object is known before it is committed, and while it is hidden. Commits that select namespaces are
// counted.
func TestStored(t *testing.T) {
	s := newTestWorld(t, Options{})
	web := serviceIn("a")
	check := func(what string, want *kinds.Object, accepted, pending bool, selections uint64) {
		t.Helper()
		if o, a, p := s.Stored(web.Key); o != want || a != accepted || p != pending || s.Selections() != selections {
			t.Errorf("%s: %v, accepted %v, pending %v, %d selections", what, o, a, p, s.Selections())
		}
	}
	s.apply(configMap("istio", map[string]string{"mesh": "discoverySelectors: [{matchLabels: {mesh: 'yes'}}]"}), namespaceWith("b", nil))
	before := s.Selections()
	check("before it is read", nil, false, false, before)
	s.merge(0, []kinds.Change{{Key: web.Key, Object: web}})
	check("read", nil, false, true, before)
	s.apply(web)
	check("hidden", web, false, false, before)
	s.apply(namespaceWith("a", map[string]string{"mesh": "yes"}))
	check("selected", web, true, false, before+1)
	s.merge(1, []kinds.Change{{Key: web.Key, Object: serviceIn("a")}}) // of a source that comes later
	check("also in another source", web, true, false, before+1)
	s.merge(0, []kinds.Change{{Key: web.Key}}) // the equal object of the other source takes its place
	check("only in the other source", web, true, false, before+1)
	s.merge(1, []kinds.Change{{Key: web.Key}})
	check("deleted", web, true, true, before+1)
}
