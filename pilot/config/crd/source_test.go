package crd

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
)

// TestMain lets many tests run at a time, unless the command line says otherwise, for they wait more than they compute.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leaks.Main(m)
}

func TestReadsAndFollows(t *testing.T) {
	t.Parallel()
	forEachEncoding(t, func(t *testing.T, change func(*apiServer)) {
		a := newAPIServer(t, kinds.Sidecar)
		change(a)
		a.put("configmaps", "a", "m", configMap("1"))
		a.put("sidecars.networking.istio.io", "a", "s", sidecar("./*"))
		r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Sidecar}, Cluster: "far"})
		r.synced()
		r.mu.Lock()
		if first := r.calls[0]; len(first) != 2 || first[0].Kind != kinds.ConfigMap || first[0].Cluster != "far" {
			t.Errorf("the first call brought %v", first)
		}
		r.mu.Unlock()
		m := r.get(kinds.ConfigMap, "a", "m")
		if m == nil || m.UID != "uid-m" || valueOf(m) != "1" || m.Spec.(*corev1.ConfigMap).ManagedFields != nil ||
			m.Spec.(*corev1.ConfigMap).ResourceVersion != "" {
			t.Fatalf("got %+v", m)
		}
		a.put("configmaps", "a", "m", configMap("2"))
		until(t, "updated", func() bool { return valueOf(r.get(kinds.ConfigMap, "a", "m")) == "2" })
		a.put("sidecars.networking.istio.io", "a", "s", sidecar("~/*"))
		until(t, "updated", func() bool { return hostOf(r.get(kinds.Sidecar, "a", "s")) == "~/*" })
		a.put("sidecars.networking.istio.io", "b", "t", sidecar("./*"))
		a.drop("sidecars.networking.istio.io", "a", "s")
		a.drop("configmaps", "a", "m")
		until(t, "gone", func() bool {
			return r.get(kinds.Sidecar, "b", "t") != nil && r.get(kinds.Sidecar, "a", "s") == nil && r.get(kinds.ConfigMap, "a", "m") == nil
		})
		r.noFindings()
	})
}

// TestNamespaces reads objects of some namespaces only, by requests for each of them, and objects without a namespace.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	var mu sync.Mutex
	wide := map[string]bool{}
	a.refuse = func(resource string, r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/namespaces/") {
			return 0, ""
		}
		mu.Lock()
		defer mu.Unlock()
		wide[resource] = true
		return 0, ""
	}
	put := func(namespace string) {
		a.put("services", namespace, "web", object{})
		a.put("sidecars.networking.istio.io", namespace, "s", sidecar("./*"))
		a.put("configmaps", namespace, "m", configMap("1"))
	}
	put("a")
	put("hidden")
	a.put("namespaces", "", "hidden", object{})
	r := read(t, a, Options{
		Kinds:      []*kinds.Kind{kinds.Namespace, kinds.Service, kinds.Sidecar, kinds.ConfigMap},
		Namespaces: []string{"a", "root"},
		Only:       map[*kinds.Kind]Restriction{kinds.ConfigMap: {Namespace: "hidden", Names: []string{"m"}}},
	})
	r.synced()
	if r.get(kinds.Namespace, "", "hidden") == nil || r.get(kinds.ConfigMap, "hidden", "m") == nil {
		t.Error("a kind without namespaces, or with a namespace of its own, is restricted")
	}
	put("root")
	put("other")
	until(t, "read", func() bool {
		return r.get(kinds.Service, "a", "web") != nil && r.get(kinds.Sidecar, "a", "s") != nil &&
			r.get(kinds.Service, "root", "web") != nil && r.get(kinds.Sidecar, "root", "s") != nil
	})
	for _, namespace := range []string{"hidden", "other"} {
		if r.get(kinds.Service, namespace, "web") != nil || r.get(kinds.Sidecar, namespace, "s") != nil {
			t.Errorf("objects of namespace %s are read", namespace)
		}
	}
	a.drop("sidecars.networking.istio.io", "root", "s")
	until(t, "gone", func() bool { return r.get(kinds.Sidecar, "root", "s") == nil && r.get(kinds.Sidecar, "a", "s") != nil })
	mu.Lock()
	defer mu.Unlock()
	if wide["services"] || wide["sidecars.networking.istio.io"] {
		t.Errorf("requests for all namespaces: %v", wide)
	}
	r.noFindings()
}

// What no translation reads is no change, whether it comes as an event or in a list that is read again.
func TestNothingNewIsNoChange(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.VirtualService)
	vs := func(status string) object {
		return object{
			"metadata": object{"generation": 1}, "status": object{"x": status},
			"spec": object{"hosts": []any{"a"}, "http": []any{object{"route": []any{object{"destination": object{"host": "a"}}}}}},
		}
	}
	pod := func(image string) object {
		return object{
			"metadata": object{"annotations": object{"cni": image}},
			"spec": object{"containers": []any{object{
				"name": "c", "image": image, "ports": []any{object{"name": "http", "containerPort": 80}},
			}}},
			"status": object{"podIP": "10.0.0.1", "phase": "Running"},
		}
	}
	a.put("virtualservices.networking.istio.io", "a", "v", vs("1"))
	a.put("pods", "a", "p", pod("1"))
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.VirtualService, kinds.Pod, kinds.ConfigMap}})
	r.synced()
	v, p := r.get(kinds.VirtualService, "a", "v"), r.get(kinds.Pod, "a", "p")
	for i := range 20 {
		a.put("virtualservices.networking.istio.io", "a", "v", vs(fmt.Sprint(i)))
		a.put("pods", "a", "p", pod(fmt.Sprint(i)))
	}
	before := a.count("pods")
	a.cutStreams(true)
	until(t, "read again", func() bool { return a.count("pods") > before+1 })
	a.put("configmaps", "a", "last", configMap("1"))
	until(t, "the last", func() bool { return r.get(kinds.ConfigMap, "a", "last") != nil })
	if n := r.handled(); n != 2 {
		t.Errorf("%d calls", n)
	}
	if r.get(kinds.VirtualService, "a", "v") != v || r.get(kinds.Pod, "a", "p") != p {
		t.Error("an object changed")
	}
}

// After a history that the API server has forgotten, only true differences are handed on.
func TestRelist(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	for i := range 50 {
		a.put("configmaps", "a", fmt.Sprint("m", i), configMap("1"))
		a.put("sidecars.networking.istio.io", "a", fmt.Sprint("s", i), sidecar("./*"))
	}
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Sidecar}})
	r.synced()
	a.with(func() {
		a.refuse = func(string, *http.Request) (int, string) { return 500, "out of order" }
	})
	a.cutStreams(false)
	a.drop("configmaps", "a", "m0")
	a.drop("sidecars.networking.istio.io", "a", "s0")
	a.put("configmaps", "a", "m1", configMap("2"))
	a.put("sidecars.networking.istio.io", "a", "new", sidecar("./*"))
	a.cutStreams(true)
	a.with(func() { a.refuse = nil })
	until(t, "caught up", func() bool {
		return r.get(kinds.ConfigMap, "a", "m0") == nil && r.get(kinds.Sidecar, "a", "s0") == nil &&
			valueOf(r.get(kinds.ConfigMap, "a", "m1")) == "2" &&
			r.get(kinds.Sidecar, "a", "new") != nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for _, c := range r.calls[1:] {
		total += len(c)
	}
	if total != 4 {
		t.Errorf("%d changes: %v", total, r.calls[1:])
	}
}

func TestSelectionOfOneKind(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	for _, ns := range []string{"sys", "other"} {
		for _, name := range []string{"x", "y", "z"} {
			a.put("configmaps", ns, name, configMap("1"))
			a.put("secrets", ns, name, object{"metadata": object{"labels": object{"l": name}}})
		}
	}
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Secret}, Only: map[*kinds.Kind]Restriction{
		kinds.ConfigMap: {Namespace: "sys", Names: []string{"x", "z", "x", "none"}}, kinds.Secret: {Namespace: "sys", Labels: "l=y"},
	}})
	r.synced()
	a.put("configmaps", "other", "x", configMap("2"))
	a.put("secrets", "sys", "z", object{})
	a.put("configmaps", "sys", "none", configMap("1"))
	until(t, "the late one", func() bool { return r.get(kinds.ConfigMap, "sys", "none") != nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.objects) != 4 {
		t.Errorf("got %v", r.objects)
	}
	for _, name := range []string{"x", "z", "none"} {
		if r.objects[kinds.Key{Kind: kinds.ConfigMap, Namespace: "sys", Name: name}] == nil {
			t.Errorf("no ConfigMap %s", name)
		}
	}
	if r.objects[kinds.Key{Kind: kinds.Secret, Namespace: "sys", Name: "y"}] == nil {
		t.Error("no Secret y")
	}
}

func TestHealthOfEntries(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.WorkloadEntry)
	put := func(status string) {
		a.put("workloadentries.networking.istio.io", "a", "w", object{
			"metadata": object{"generation": 1}, "spec": object{"address": "1.2.3.4"},
			"status": object{"conditions": []any{object{"type": "Healthy", "status": status}}},
		})
	}
	put("True")
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.WorkloadEntry}})
	r.synced()
	health := func() string { return r.get(kinds.WorkloadEntry, "a", "w").Annotations[kinds.AnnotationHealthy] }
	if health() != "true" {
		t.Error(health())
	}
	put("False")
	until(t, "unhealthy", func() bool { return health() == "false" })
}

func TestAddressesOfEntries(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.ServiceEntry)
	put := func(addresses ...any) {
		a.put("serviceentries.networking.istio.io", "a", "s", object{
			"metadata": object{"generation": 1},
			"spec":     object{"hosts": []any{"a.example"}, "resolution": "DNS", "ports": []any{object{"number": 80, "name": "http"}}},
			"status":   object{"addresses": addresses},
		})
	}
	put(object{"value": "240.240.0.1"}, object{"value": "2001:2::1", "host": "A.example"}, object{"value": "nonsense"})
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ServiceEntry}})
	r.synced()
	addresses := func() string { return r.get(kinds.ServiceEntry, "a", "s").Annotations[kinds.AnnotationAddresses] }
	if addresses() != " 240.240.0.1\na.example 2001:2::1" {
		t.Errorf("%q", addresses())
	}
	put()
	until(t, "without", func() bool { return addresses() == "" })
}

func TestNewRefuses(t *testing.T) {
	a := newAPIServer(t)
	bad := a.config()
	bad.CAData = []byte("x")
	for name, o := range map[string]Options{
		"no client": {}, "a kind twice": {Client: a.config(), Kinds: []*kinds.Kind{kinds.Pod, kinds.Pod}}, "a bad client": {Client: bad},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
