package snapshot_test

import (
	"slices"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

var (
	web     = registry.ServiceKey{Namespace: "a", Host: "web.a.svc.cluster.local"}
	webPod  = registry.WorkloadKey{Kind: kinds.Pod, Namespace: "a", Name: "web-0"}
	website = registry.Service{
		Host: web.Host, Namespace: "a", Name: "web", Selector: map[string]string{"app": "web"},
		Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}},
	}
)

func endpoint(address string, change ...func(*registry.Endpoint)) *registry.Endpoint {
	e := &registry.Endpoint{
		Address: address, Port: 8080, ServicePort: "http", Identity: "spiffe://cluster.local/ns/a/sa/web", TLSMode: "istio",
		HealthKnown: true,
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func pod(change ...func(*registry.Workload)) *registry.Workload {
	w := &registry.Workload{
		WorkloadKey: webPod, Addresses: []string{"10.1.0.1"}, Labels: map[string]string{"app": "web"},
		Identity: "spiffe://cluster.local/ns/a/sa/web",
	}
	for _, c := range change {
		c(w)
	}
	return w
}

func service(change ...func(*registry.Service)) *registry.Service {
	s := website
	for _, c := range change {
		c(&s)
	}
	return &s
}

// reaches is a Catalog whose objects need no facts.
type reaches map[*kinds.Kind]snapshot.Reach

func (r reaches) Kinds() map[*kinds.Kind]snapshot.Reach { return r }
func (reaches) Wants(*kinds.Object) []facts.Want        { return nil }

// TestDiff checks what a commit lists as changed, after a first commit with one service, two endpoints and one pod.
func TestDiff(t *testing.T) {
	headless := func(s *registry.Service) { s.Headless, s.Resolution = true, registry.Passthrough }
	eps := func(list ...*registry.Endpoint) registry.Changes {
		return registry.Changes{Endpoints: map[registry.ServiceKey][]*registry.Endpoint{web: list}}
	}
	workload := func(w *registry.Workload) registry.Changes {
		return registry.Changes{Workloads: map[registry.WorkloadKey]*registry.Workload{webPod: w}}
	}
	one, two := endpoint("10.1.0.1"), endpoint("10.1.0.2")
	for _, c := range []struct {
		name      string
		service   *registry.Service
		changes   registry.Changes
		full      bool
		endpoints bool
		workloads bool
		addresses bool
		trigger   string
	}{
		{
			name: "health", service: service(),
			changes: eps(one, endpoint("10.1.0.2", func(e *registry.Endpoint) { e.Health = registry.Unhealthy })), endpoints: true,
			trigger: "endpoint",
		},
		{
			name: "weight", service: service(), changes: eps(one, endpoint("10.1.0.2", func(e *registry.Endpoint) { e.Weight = 5 })),
			endpoints: true, trigger: "endpoint",
		},
		{name: "a known workload stays away", service: service(), changes: eps(two), endpoints: true, trigger: "endpoint"},
		{name: "an unknown address goes", service: service(), changes: eps(one), endpoints: true, addresses: true, trigger: "proxy"},
		{
			name: "an unknown address comes", service: service(), changes: eps(one, two, endpoint("10.1.0.3")), endpoints: true, addresses: true,
			trigger: "proxy",
		},
		{
			name: "an address comes together with its workload", service: service(), endpoints: true, workloads: true, trigger: "endpoint",
			changes: registry.Changes{
				Endpoints: eps(one, two, endpoint("10.1.0.3")).Endpoints,
				Workloads: workload(pod(func(w *registry.Workload) { w.Addresses = []string{"10.1.0.1", "10.1.0.3"} })).Workloads,
			},
		},
		{
			name: "without selector an address comes", service: service(func(s *registry.Service) { s.Selector = nil }),
			changes: eps(one, two, endpoint("10.1.0.1", func(e *registry.Endpoint) { e.ServicePort = "more" })), endpoints: true,
			addresses: true, trigger: "proxy",
		},
		{
			name: "without selector a port moves", service: service(func(s *registry.Service) { s.Selector = nil }),
			changes: eps(endpoint("10.1.0.1", func(e *registry.Endpoint) { e.Port = 9090 }), two), endpoints: true, addresses: true,
			trigger: "proxy",
		},
		{
			name: "a service account comes", service: service(), endpoints: true, trigger: "endpoint",
			changes: eps(one, endpoint("10.1.0.2", func(e *registry.Endpoint) { e.Identity = "spiffe://cluster.local/ns/a/sa/canary" })),
		},
		{
			name: "headless: an address changes", service: service(headless), changes: eps(one, endpoint("10.1.0.9")), endpoints: true,
			addresses: true, trigger: "headlessendpoint",
		},
		{
			name: "headless: health", service: service(headless),
			changes: eps(one, endpoint("10.1.0.2", func(e *registry.Endpoint) { e.Health = registry.Unhealthy })), endpoints: true,
			trigger: "headlessendpoint",
		},
		{
			name: "headless: mTLS ends", service: service(headless),
			changes: eps(one, endpoint("10.1.0.2", func(e *registry.Endpoint) { e.TLSMode = "" })), endpoints: true, trigger: "headlessendpoint",
		},
		{
			name: "resolved by DNS", service: service(func(s *registry.Service) { s.Resolution = registry.DNS }),
			changes: eps(one, endpoint("10.1.0.2", func(e *registry.Endpoint) { e.Weight = 5 })), endpoints: true, trigger: "endpoint",
		},
		{
			name: "workload labels", service: service(),
			changes: workload(pod(func(w *registry.Workload) { w.Labels = map[string]string{"app": "api"} })), workloads: true, trigger: "proxy",
		},
		{
			name: "workload identity", service: service(), changes: workload(pod(func(w *registry.Workload) { w.Identity = "other" })),
			workloads: true, trigger: "proxy",
		},
		{
			name: "workload ports", service: service(),
			changes: workload(pod(func(w *registry.Workload) { w.Ports = map[string]uint32{"http": 1} })), workloads: true, trigger: "proxy",
		},
		{
			name: "workload owner", service: service(), changes: workload(pod(func(w *registry.Workload) { w.Owner = "deployment" })),
			workloads: true, trigger: "proxy",
		},
		{name: "workload readiness", service: service(), changes: workload(pod(func(w *registry.Workload) { w.Ready = true }))},
		{name: "workload gone", service: service(), changes: workload(nil), workloads: true, trigger: "proxy"},
		{
			name: "service gone", service: service(), changes: registry.Changes{Services: map[registry.ServiceKey]*registry.Service{web: nil}},
			full: true, trigger: "service",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
			b.ApplyRegistry(registry.Changes{
				Services:  map[registry.ServiceKey]*registry.Service{web: c.service},
				Endpoints: map[registry.ServiceKey][]*registry.Endpoint{web: {one, two}},
				Workloads: map[registry.WorkloadKey]*registry.Workload{webPod: pod()},
			})
			first := b.Commit(time.Time{})
			if !first.Diff.Full || first.Revision != 1 {
				t.Fatalf("first: %+v", first.Diff)
			}
			if b.Commit(time.Unix(7, 0)) != first {
				t.Fatal("another Snapshot, though nothing changed")
			}
			b.ApplyRegistry(c.changes)
			received := time.Unix(7, 0)
			d := b.Commit(received).Diff
			if d.Full != c.full || (len(d.Endpoints) > 0) != c.endpoints || (len(d.Workloads) > 0) != c.workloads ||
				(len(d.Addresses) > 0) != c.addresses || !d.Received.Equal(received) {
				t.Errorf("delta %+v", d)
			}
			if c.trigger == "" && len(d.Triggers) != 0 || c.trigger != "" && d.Triggers[c.trigger] == 0 {
				t.Errorf("triggers %v", d.Triggers)
			}
			if len(d.Causes) == 0 {
				t.Errorf("causes %v", d.Causes)
			}
		})
	}
}

func virtual(ns, name string, created int64) *kinds.Object {
	o := &kinds.Object{
		Key: kinds.Key{Kind: kinds.VirtualService, Namespace: ns, Name: name}, Spec: &networkingv1.VirtualService{Hosts: []string{name}},
	}
	if created > 0 {
		o.Created = time.Unix(created, 0)
	}
	return o
}

func change(o *kinds.Object) kinds.Change { return kinds.Change{Key: o.Key, Object: o} }

// TestSnapshotIsImmutable checks that later commits leave a Snapshot as it is.
func TestSnapshotIsImmutable(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	x, y := virtual("a", "x", 2), virtual("a", "y", 1)
	b.Apply([]kinds.Change{change(x), change(y)})
	b.ApplyRegistry(registry.Changes{
		Services:  map[registry.ServiceKey]*registry.Service{web: service()},
		Workloads: map[registry.WorkloadKey]*registry.Workload{webPod: pod()},
	})
	first := b.Commit(time.Time{})
	b.Apply([]kinds.Change{{Key: y.Key}, change(virtual("b", "z", 1))})
	b.ApplyRegistry(registry.Changes{
		Services: map[registry.ServiceKey]*registry.Service{web: nil}, Workloads: map[registry.WorkloadKey]*registry.Workload{webPod: nil},
	})
	second := b.Commit(time.Time{})

	if got := first.Objects(kinds.VirtualService, "a"); !slices.Equal(got, []*kinds.Object{y, x}) {
		t.Errorf("first: %v", got)
	}
	if first.Service(web) == nil || len(first.Services()) != 1 || len(slices.Collect(first.ServicesByHost(web.Host))) != 1 ||
		first.WorkloadByAddress("", "10.1.0.1") == nil || first.Workload(webPod) == nil {
		t.Error("the first Snapshot lost what the second has not")
	}
	if got := second.Objects(kinds.VirtualService, "a"); !slices.Equal(got, []*kinds.Object{x}) {
		t.Errorf("second: %v", got)
	}
	if second.Service(web) != nil || len(second.Services()) != 0 || second.WorkloadByAddress("", "10.1.0.1") != nil ||
		second.Workload(webPod) != nil || second.Object(y.Key) != nil {
		t.Error("the second Snapshot has what is gone")
	}
	if second.Revision != 2 || second.Diff.Triggers["config"] != 2 {
		t.Errorf("second: revision %d, %+v", second.Revision, second.Diff)
	}
}

// TestPrecedence checks the order: oldest first, those without a time before all, ties by name and then namespace,
// whatever the order of arrival.
func TestPrecedence(t *testing.T) {
	want := []*kinds.Object{virtual("b", "a", 0), virtual("a", "b", 0), virtual("b", "b", 0), virtual("a", "z", 1), virtual("a", "c", 2)}
	for i := range want {
		b := snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default()})
		for j := range want {
			b.Apply([]kinds.Change{change(want[(i+j*3)%len(want)])})
		}
		if got := b.Commit(time.Time{}).AllObjects(kinds.VirtualService); !slices.Equal(got, want) {
			t.Errorf("from %d: %v", i, got)
		}
	}
}

// TestEqualObjectKeepsItsPointer checks that an object of equal content keeps its old pointer, and is no change.
func TestEqualObjectKeepsItsPointer(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default(), Catalog: reaches{kinds.VirtualService: snapshot.Scoped}})
	x := virtual("a", "x", 1)
	b.Apply([]kinds.Change{change(x)})
	first := b.Commit(time.Time{})
	again := virtual("a", "x", 1)
	again.Position = "elsewhere.yaml:1:1"
	b.Apply([]kinds.Change{change(again)})
	if s := b.Commit(time.Time{}); s != first || s.Object(x.Key) != x {
		t.Errorf("%v, %+v", s.Object(x.Key), s.Diff)
	}
	for name, alter := range map[string]func(*kinds.Object){
		"spec":        func(o *kinds.Object) { o.Spec = &networkingv1.VirtualService{Hosts: []string{"y"}} },
		"labels":      func(o *kinds.Object) { o.Labels = map[string]string{"a": "b"} },
		"annotations": func(o *kinds.Object) { o.Annotations = map[string]string{"a": "b"} },
		"age":         func(o *kinds.Object) { o.Created = time.Unix(9, 0) },
		"derivation":  func(o *kinds.Object) { o.Extra = &kinds.RouteExtra{Segments: true} },
	} {
		next := virtual("a", "x", 1)
		alter(next)
		b.Apply([]kinds.Change{change(next)})
		translated := name == "spec" || name == "age" || name == "derivation"
		if s := b.Commit(time.Time{}); s.Object(x.Key) != next || s.Diff.Full != translated || s.Diff.Objects == translated ||
			(s.Diff.Triggers["config"] == 1) != translated || (len(s.Diff.Configs) == 1) != translated || !slices.Equal(
			s.Diff.Causes, []string{x.Key.String()},
		) {
			t.Errorf("%s: %+v", name, s.Diff)
		}
		b.Apply([]kinds.Change{change(x)})
		b.Commit(time.Time{})
	}
}

// TestObjectsThatNobodyTranslates checks that objects which only registries read are stored for those who ask for
// objects and change nothing for proxies. Objects of a remote cluster are not stored.
func TestObjectsThatNobodyTranslates(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default(), Catalog: reaches{kinds.VirtualService: snapshot.Scoped}})
	key := kinds.Key{Kind: kinds.WorkloadGroup, Namespace: "a", Name: "x"}
	group := func(k kinds.Key, address string) kinds.Change {
		return change(&kinds.Object{Key: k, Spec: &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{Address: address}}})
	}
	first := b.Commit(time.Time{})
	b.Apply([]kinds.Change{group(key, "10.0.0.1")})
	s := b.Commit(time.Time{})
	if s.Object(key) == nil || first.Object(key) != nil || s.Diff.Full || !s.Diff.Objects || len(s.Diff.Triggers) != 0 {
		t.Errorf("%v, %+v", s.Object(key), s.Diff)
	}
	remote := key
	remote.Cluster = "other"
	b.Apply([]kinds.Change{group(key, "10.0.0.1"), group(remote, "10.0.0.2"), {Key: kinds.Key{Kind: kinds.Pod, Namespace: "a", Name: "x"}}})
	if same := b.Commit(time.Time{}); same != s {
		t.Errorf("nothing changed: %+v", same.Diff)
	}
	b.Apply([]kinds.Change{{Key: key}})
	if gone := b.Commit(time.Time{}); gone.Object(key) != nil || !gone.Diff.Objects || gone.Diff.Full || s.Object(key) == nil {
		t.Errorf("gone: %+v", gone.Diff)
	}
}

func TestMeshConfig(t *testing.T) {
	m := mesh.Default()
	b := snapshot.NewBuilder(snapshot.Options{Mesh: m})
	b.SetMesh(m)
	if s := b.Commit(time.Time{}); s.Diff.Full {
		t.Errorf("the same mesh: %+v", s.Diff)
	}
	other := mesh.Default()
	b.SetMesh(other)
	if s := b.Commit(time.Time{}); s.Mesh != other || !s.Diff.Full || s.Diff.Triggers["global"] != 1 {
		t.Errorf("%+v", s.Diff)
	}
}

func TestCausesAreBounded(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default()})
	for i := range 3 * snapshot.MaxCauses {
		b.Apply([]kinds.Change{change(virtual("a", string(rune('a'+i)), 1))})
	}
	if d := b.Commit(time.Time{}).Diff; len(d.Causes) != snapshot.MaxCauses || d.Triggers["config"] != 3*snapshot.MaxCauses {
		t.Errorf("%d causes, %v", len(d.Causes), d.Triggers)
	}
}

// TestEndpointsSummary checks what clusters need to know of a service's endpoints: their TLS and identities.
func TestEndpointsSummary(t *testing.T) {
	plain := endpoint("10.1.0.3", func(e *registry.Endpoint) { e.TLSMode, e.Identity = "", "" })
	other := endpoint("10.1.0.4", func(e *registry.Endpoint) { e.Identity = "spiffe://cluster.local/ns/a/sa/a" })
	for _, c := range []struct {
		list []*registry.Endpoint
		tls  snapshot.TLS
		ids  []string
	}{
		{nil, snapshot.NoTLS, nil},
		{[]*registry.Endpoint{plain}, snapshot.NoTLS, nil},
		{[]*registry.Endpoint{endpoint("10.1.0.1"), plain}, snapshot.SomeTLS, []string{"spiffe://cluster.local/ns/a/sa/web"}},
		{
			[]*registry.Endpoint{endpoint("10.1.0.1"), other, endpoint("10.1.0.2")}, snapshot.AllTLS,
			[]string{"spiffe://cluster.local/ns/a/sa/a", "spiffe://cluster.local/ns/a/sa/web"},
		},
	} {
		b := snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default()})
		b.ApplyRegistry(registry.Changes{Endpoints: map[registry.ServiceKey][]*registry.Endpoint{web: c.list}})
		if e := b.Commit(time.Time{}).Endpoints(web); e.TLS != c.tls || !slices.Equal(slices.Collect(e.Identities.All), c.ids) {
			t.Errorf("%v: %v %q", c.list, e.TLS, slices.Collect(e.Identities.All))
		}
	}
}

// TestRootsOfDiff: other roots make a Snapshot that says so, and equal ones make none.
func TestRootsOfDiff(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	b.SetRoots([]string{"x"})
	first := b.Commit(time.Time{})
	b.SetRoots([]string{"x"})
	if b.Commit(time.Time{}) != first {
		t.Error("equal roots make another Snapshot")
	}
	b.SetRoots([]string{"x", "y"})
	second := b.Commit(time.Time{})
	if second == first || !second.Diff.Roots || !second.Diff.Full || first.Roots() == second.Roots() {
		t.Errorf("other roots: %+v", second.Diff)
	}
	b.SetMesh(&mesh.Config{MeshConfig: mesh.Default().MeshConfig})
	if third := b.Commit(time.Time{}); third.Diff.Roots || third.Roots() != second.Roots() {
		t.Errorf("another mesh configuration: %+v", third.Diff)
	}
}
