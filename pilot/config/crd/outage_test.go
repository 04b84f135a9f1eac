package crd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

func TestDefinitionsComeAndGo(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.put("configmaps", "a", "m", configMap("1"))
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Sidecar}})
	r.synced() // although there are no Sidecars
	for range 3 {
		a.define(kinds.Sidecar)
		a.put("sidecars.networking.istio.io", "a", "s", sidecar("./*"))
		until(t, "read", func() bool { return r.get(kinds.Sidecar, "a", "s") != nil })
		// The API server deletes the objects, but nobody has to see it do so.
		a.with(func() { delete(a.objects, "sidecars.networking.istio.io") })
		a.undefine(kinds.Sidecar)
		a.cutStreams(false)
		until(t, "gone", func() bool { return r.get(kinds.Sidecar, "a", "s") == nil })
		if r.get(kinds.ConfigMap, "a", "m") == nil {
			t.Error("another kind is gone")
		}
	}
	r.noFindings()
	i := 1
	until(t, "a kind that is not defined is asked for no more, while others go on", func() bool { // the last request may be under way
		i++
		before := a.count("sidecars.networking.istio.io")
		a.put("configmaps", "a", "m", configMap(fmt.Sprint(i)))
		until(t, "others go on", func() bool { return valueOf(r.get(kinds.ConfigMap, "a", "m")) == fmt.Sprint(i) })
		return a.count("sidecars.networking.istio.io") == before
	})
}

// An older version is read where the preferred one is not served.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	a.refuse = func(res string, r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/v1/sidecars") {
			return 404, "no such version"
		}
		return 0, ""
	}
	a.put("sidecars.networking.istio.io", "a", "s", sidecar("./*"))
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar}})
	r.synced()
	if r.get(kinds.Sidecar, "a", "s") == nil {
		t.Error("not read")
	}
	r.noFindings()
}

func deny(resource, verb string) func(string, *http.Request) (int, string) {
	return func(res string, r *http.Request) (int, string) {
		if res == resource {
			return 403, fmt.Sprintf(
				"%s is forbidden: User \"x\" cannot %s resource \"%s\" in API group \"\" at the cluster scope", resource, verb, resource,
			)
		}
		return 0, ""
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.refuse = deny("secrets", "list")
	a.put("configmaps", "a", "m", configMap("1"))
	a.put("secrets", "a", "s", object{"type": "Opaque", "data": object{"k": "dg=="}})
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Secret}})
	d := r.finding("NoWatch")
	if d.Object != "secrets" || !strings.Contains(d.Message, "list secrets") || d.Severity != diag.Error {
		t.Errorf("%+v", d)
	}
	until(t, "the log says what is waited for", func() bool { return strings.Contains(r.log.String(), "kind=Secret") })
	if r.HasSynced() || r.handled() != 0 {
		t.Error("synced without the secrets")
	}
	a.with(func() { a.refuse = nil })
	r.synced()
	r.noFindings()

	// Taken away again, what was read stays, and the other kind goes on.
	a.with(func() { a.refuse = deny("secrets", "watch") })
	a.cutStreams(false)
	if d := r.finding("NoWatch"); !strings.Contains(d.Message, "watch secrets") {
		t.Errorf("%+v", d)
	}
	if v := r.stalled()["secrets"]; v != 1 {
		t.Errorf("stalled is %v", v)
	}
	a.put("configmaps", "a", "m", configMap("2"))
	until(t, "others go on", func() bool { return valueOf(r.get(kinds.ConfigMap, "a", "m")) == "2" })
	if s := r.get(kinds.Secret, "a", "s"); s == nil || string(s.Spec.(*corev1.Secret).Data["k"]) != "v" {
		t.Error("the secret is gone")
	}
	a.with(func() { a.refuse = nil })
	r.noFindings()
	r.stop()
	if left := r.stalled(); len(left) != 0 {
		t.Errorf("series are left: %v", left)
	}
}

// TestForbiddenDefinitions: without the right to list definitions, every kind is requested. A kind that was forbidden,
// and then does not exist, is no finding.
func TestForbiddenDefinitions(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	a.refuse = func(string, *http.Request) (int, string) { return 403, "forbidden" }
	a.put("sidecars.networking.istio.io", "a", "s", sidecar("./*"))
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar, kinds.VirtualService}})
	until(t, "all is forbidden", func() bool { return len(r.Findings()) == 3 })
	a.with(func() { a.refuse = deny(definitionsResource, "list") })
	r.synced()
	until(t, "definitions are forbidden", func() bool { return len(r.Findings()) == 1 })
	if r.get(kinds.Sidecar, "a", "s") == nil {
		t.Error("not read")
	}
	if d := r.finding("NoWatch"); d.Object != definitionsResource {
		t.Errorf("%+v", d)
	}
	a.with(func() { a.refuse = nil })
	r.noFindings()
	a.define(kinds.VirtualService)
	a.put(
		"virtualservices.networking.istio.io", "a", "v",
		object{"spec": object{"hosts": []any{"a"}, "http": []any{object{"route": []any{object{"destination": object{"host": "a"}}}}}}},
	)
	until(t, "read", func() bool { return r.get(kinds.VirtualService, "a", "v") != nil })
}

// TestNotFoundIsNotAbsent answers 404 to the lists of a kind that there is. The source waits, and says so. Objects that
// were read before stay, and are not current.
func TestNotFoundIsNotAbsent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  *kinds.Kind
		blind bool // definitions cannot be read
	}{
		"core":                {kinds.ConfigMap, false},
		"pods":                {kinds.Pod, false},
		"defined":             {kinds.AuthorizationPolicy, false},
		"definitions unknown": {kinds.AuthorizationPolicy, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPIServer(t, kinds.AuthorizationPolicy)
			missing := func(res string, r *http.Request) (int, string) {
				if res == pathOf(c.kind) {
					return 404, "not found"
				}
				if c.blind {
					return deny(definitionsResource, "list")(res, r)
				}
				return 0, ""
			}
			a.refuse = missing
			r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Pod, kinds.AuthorizationPolicy, kinds.Sidecar}})
			if d := r.finding("NotServed"); d.Severity != diag.Error || !strings.Contains(d.Message, c.kind.Name) {
				t.Errorf("%+v", d)
			}
			until(t, "the log says why", func() bool { return strings.Contains(r.log.String(), "404") })
			if r.HasSynced() || r.handled() != 0 {
				t.Error("synced without the kind")
			}
			a.with(func() { a.refuse = nil })
			r.synced()
			until(t, "it is read", func() bool { return r.Current(c.kind) })
			a.with(func() { a.refuse = missing })
			a.cutStreams(true)
			if d := r.finding("APIServer"); !strings.Contains(d.Message, c.kind.Name+": it answers 404") || r.Current(c.kind) {
				t.Errorf("once it was read: %+v, current %v", d, r.Current(c.kind))
			}
			a.with(func() { a.refuse = nil })
			r.noFindings()
		})
	}
}

// TestDefinitionsNotFound: an API server that answers the list of definitions with 404 is a finding.
func TestDefinitionsNotFound(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	a.refuse = func(string, *http.Request) (int, string) { return 404, "page not found" }
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar}})
	if d := r.finding("APIServer"); !strings.Contains(d.Message, "CustomResourceDefinition: ") || r.HasSynced() {
		t.Errorf("%+v", d)
	}
	a.with(func() { a.refuse = nil })
	r.synced()
	r.noFindings()
}

// The services of a remote cluster count although its kubeconfig may not read what Istio defines.
func TestRemoteClusterWithFewRights(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.WorkloadEntry)
	a.refuse = func(res string, r *http.Request) (int, string) {
		for _, custom := range []string{definitionsResource, "workloadentries.networking.istio.io"} {
			if status, text := deny(custom, "list")(res, r); status != 0 {
				return status, text
			}
		}
		return 0, ""
	}
	a.put("configmaps", "a", "m", configMap("1"))
	r := read(t, a, Options{Cluster: "far", Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.WorkloadEntry}})
	r.synced()
	if r.get(kinds.ConfigMap, "a", "m") == nil {
		t.Error("not read")
	}
	r.finding("NoWatch")
	a.with(func() { a.refuse = nil })
	a.put("workloadentries.networking.istio.io", "a", "w", object{"spec": object{"address": "1.2.3.4"}})
	until(t, "read once it may be", func() bool { return r.get(kinds.WorkloadEntry, "a", "w") != nil })
	r.noFindings()
}

// An API server in trouble is asked seldom, and answers again in the end.
func TestOutage(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar, kinds.VirtualService, kinds.Gateway)
	a.refuse = func(string, *http.Request) (int, string) { return 500, "broken" }
	a.put("configmaps", "a", "m", configMap("1"))
	start := time.Now()
	r := read(t, a, Options{Kinds: []*kinds.Kind{
		kinds.ConfigMap, kinds.Pod, kinds.Service, kinds.Node, kinds.Namespace, kinds.EndpointSlice, kinds.Secret, kinds.Sidecar,
		kinds.VirtualService, kinds.Gateway,
	}})
	d := r.finding("APIServer")
	if !strings.Contains(d.Message, "broken") {
		t.Errorf("%+v", d)
	}
	if n, seconds := a.count(""), time.Since(start).Seconds(); float64(n) > 20+seconds*10 {
		t.Errorf("%d requests in %.1f s", n, seconds)
	}
	if r.HasSynced() {
		t.Error("synced without having read anything")
	}
	a.with(func() { a.refuse = nil })
	r.synced()
	r.noFindings()
	if r.get(kinds.ConfigMap, "a", "m") == nil {
		t.Error("not read")
	}
}

// A stop while nothing answers, or while nobody is there, leaves no goroutine: goleak looks.
func TestStopWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]int{"too many requests": 429, "failing": 500, "missing": 404} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPIServer(t)
			a.refuse = func(string, *http.Request) (int, string) { return refuse, "no" }
			r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Sidecar}})
			until(t, "asked", func() bool { return a.count("configmaps") > 0 })
			r.stop()
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		a := newAPIServer(t)
		a.Close()
		r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Sidecar}})
		r.finding("APIServer")
		r.stop()
	})
}
