package crd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = map[string]any

// reader runs a source and holds what it hands on.
type reader struct {
	*Source
	t       *testing.T
	metrics *prometheus.Registry
	log     *lockedBuffer
	stop    func()

	mu      sync.Mutex
	calls   [][]kinds.Change
	objects map[kinds.Key]*kinds.Object
	busy    bool
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func read(t *testing.T, a *apiServer, o Options) *reader {
	t.Helper()
	r := &reader{t: t, metrics: prometheus.NewRegistry(), objects: map[kinds.Key]*kinds.Object{}, log: &lockedBuffer{}}
	o.Client, o.Metrics, o.Handler, o.Logger = a.config(), r.metrics, r.handle, slog.New(slog.NewTextHandler(r.log, nil))
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Source = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	var once sync.Once
	go func() { done <- s.Run(ctx) }()
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

func (r *reader) handle(changes []kinds.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		r.t.Error("two calls at a time")
	}
	r.busy = true
	r.calls = append(r.calls, changes)
	for _, c := range changes {
		_, had := r.objects[c.Key]
		if c.Object == nil {
			if !had {
				r.t.Errorf("%s is gone, but never came", c.Key)
			}
			delete(r.objects, c.Key)
			continue
		}
		if c.Object.Key != c.Key {
			r.t.Errorf("%s has the key %s", c.Key, c.Object.Key)
		}
		r.objects[c.Key] = c.Object
	}
	r.busy = false
}

func (r *reader) get(k *kinds.Kind, namespace, name string) *kinds.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[kinds.Key{Kind: k, Namespace: namespace, Name: name, Cluster: r.opts.Cluster}]
}

func (r *reader) handled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *reader) synced() {
	r.t.Helper()
	until(r.t, "synced", r.HasSynced)
}

// finding waits for a finding with that code.
func (r *reader) finding(code string) diag.Diagnostic {
	r.t.Helper()
	var out diag.Diagnostic
	until(r.t, "finding "+code, func() bool {
		for _, d := range r.Findings() {
			if d.Code == code {
				out = d
				return true
			}
		}
		return false
	})
	return out
}

// stalled gives the gauge of that name by resource.
func (r *reader) stalled() map[string]float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "pilot_k8s_watch_stalled" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "resource" {
					out[l.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return out
}

func (r *reader) noFindings() {
	r.t.Helper()
	until(r.t, "no findings", func() bool { return len(r.Findings()) == 0 })
}

func sidecar(host string) object {
	return object{"spec": object{"egress": []any{object{"hosts": []any{host}}}}}
}

func hostOf(o *kinds.Object) string {
	if o == nil {
		return ""
	}
	return o.Spec.(*networkingv1.Sidecar).Egress[0].Hosts[0]
}

func configMap(value string) object { return object{"data": object{"k": value}} }

func valueOf(o *kinds.Object) string {
	if o == nil {
		return ""
	}
	return o.Spec.(*corev1.ConfigMap).Data["k"]
}

func forEachEncoding(t *testing.T, fn func(t *testing.T, change func(*apiServer))) {
	for name, change := range map[string]func(*apiServer){
		"protobuf": func(*apiServer) {}, "json": func(a *apiServer) { a.asJSON = true }, "old API": func(a *apiServer) { a.oldAPI = true },
		"old API in json": func(a *apiServer) { a.asJSON, a.oldAPI = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, change)
		})
	}
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
		if m == nil || m.UID != "uid-m" || valueOf(m) != "1" || m.Spec.(*corev1.ConfigMap).ManagedFields != nil || m.Spec.(*corev1.ConfigMap).ResourceVersion != "" {
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
			"metadata": object{"annotations": object{"cni": image}}, "spec": object{"containers": []any{object{"name": "c", "image": image, "ports": []any{object{"name": "http", "containerPort": 80}}}}},
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
		return r.get(kinds.ConfigMap, "a", "m0") == nil && r.get(kinds.Sidecar, "a", "s0") == nil && valueOf(r.get(kinds.ConfigMap, "a", "m1")) == "2" &&
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
	before := a.count("sidecars.networking.istio.io")
	a.put("configmaps", "a", "m", configMap("2"))
	until(t, "others go on", func() bool { return valueOf(r.get(kinds.ConfigMap, "a", "m")) == "2" })
	if n := a.count("sidecars.networking.istio.io"); n != before {
		t.Errorf("a kind that is not defined was asked for %d times", n-before)
	}
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
			return 403, fmt.Sprintf("%s is forbidden: User \"x\" cannot %s resource \"%s\" in API group \"\" at the cluster scope", resource, verb, resource)
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

// Without the right to list definitions, every kind is simply asked for.
func TestForbiddenDefinitions(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	a.refuse = deny(definitionsResource, "list")
	a.put("sidecars.networking.istio.io", "a", "s", sidecar("./*"))
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar, kinds.VirtualService}})
	r.synced()
	if r.get(kinds.Sidecar, "a", "s") == nil {
		t.Error("not read")
	}
	if d := r.finding("NoWatch"); d.Object != definitionsResource {
		t.Errorf("%+v", d)
	}
	a.with(func() { a.refuse = nil })
	r.noFindings()
	a.define(kinds.VirtualService)
	a.put("virtualservices.networking.istio.io", "a", "v", object{"spec": object{"hosts": []any{"a"}, "http": []any{object{"route": []any{object{"destination": object{"host": "a"}}}}}}})
	until(t, "read", func() bool { return r.get(kinds.VirtualService, "a", "v") != nil })
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
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Pod, kinds.Service, kinds.Node, kinds.Namespace, kinds.EndpointSlice, kinds.Secret, kinds.Sidecar, kinds.VirtualService, kinds.Gateway}})
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

func TestOnly(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	for _, ns := range []string{"sys", "other"} {
		for _, name := range []string{"x", "y", "z"} {
			a.put("configmaps", ns, name, configMap("1"))
			a.put("secrets", ns, name, object{"metadata": object{"labels": object{"l": name}}})
		}
	}
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Secret}, Only: map[*kinds.Kind]Selection{
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

func policy(principal any, uid string) object {
	return object{"metadata": object{"uid": uid}, "spec": object{
		"selector": object{"matchLabels": object{"app": "x"}}, "rules": []any{object{"from": []any{object{"source": object{"principals": []any{principal}}}}}},
	}}
}

func TestSecurityObjectsFailClosed(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.AuthorizationPolicy, kinds.PeerAuthentication, kinds.RequestAuthentication)
	const policies = "authorizationpolicies.security.istio.io"
	a.put(policies, "a", "bad", policy(1, "1"))
	a.put(policies, "a", "worse", object{"spec": object{"selector": 1, "rules": 2}})
	a.put(policies, "a", "worst", object{"spec": 1})
	a.put("peerauthentications.security.istio.io", "a", "p", object{"spec": object{"selector": object{"matchLabels": object{"app": "x"}}, "mtls": object{"mode": "NEWER"}}})
	a.put("requestauthentications.security.istio.io", "a", "r", object{"spec": object{"jwtRules": []any{object{"issuer": "a", "newerField": 1}}}})
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.AuthorizationPolicy, kinds.PeerAuthentication, kinds.RequestAuthentication}})
	r.synced()
	bad := r.get(kinds.AuthorizationPolicy, "a", "bad")
	if p := bad.Spec.(*securityv1.AuthorizationPolicy); len(p.Rules) != 0 || p.Action != 0 || p.Selector.MatchLabels["app"] != "x" {
		t.Errorf("%v", p)
	}
	for _, name := range []string{"worse", "worst"} {
		if p := r.get(kinds.AuthorizationPolicy, "a", name).Spec.(*securityv1.AuthorizationPolicy); len(p.Rules) != 0 || p.Selector != nil {
			t.Errorf("%v", p)
		}
	}
	if p := r.get(kinds.PeerAuthentication, "a", "p").Spec.(*securityv1.PeerAuthentication); p.Mtls.Mode != securityv1.PeerAuthentication_MutualTLS_STRICT || p.Selector.MatchLabels["app"] != "x" {
		t.Errorf("%v", p)
	}
	if p := r.get(kinds.RequestAuthentication, "a", "r").Spec.(*securityv1.RequestAuthentication); len(p.JwtRules) != 0 {
		t.Errorf("%v", p)
	}
	errors := map[string]bool{}
	for _, d := range r.Findings() {
		errors[d.Object] = errors[d.Object] || d.Severity == diag.Error && d.Code == "Unusable"
	}
	if len(errors) != 5 || errors["AuthorizationPolicy a/bad"] != true {
		t.Errorf("findings: %v", r.Findings())
	}

	// A good version counts, and then stays when the next is bad; of another object by that name it does not.
	a.put(policies, "a", "bad", policy("p1", "1"))
	principal := func() string {
		p := r.get(kinds.AuthorizationPolicy, "a", "bad").Spec.(*securityv1.AuthorizationPolicy)
		if len(p.Rules) == 0 {
			return ""
		}
		return p.Rules[0].From[0].Source.Principals[0]
	}
	until(t, "mended", func() bool { return principal() == "p1" })
	a.put(policies, "a", "bad", policy(1, "1"))
	until(t, "found", func() bool {
		return strings.Contains(fmt.Sprint(r.Findings()), "AuthorizationPolicy a/bad: the object cannot be used: its last good version")
	})
	if principal() != "p1" {
		t.Error("the last good version is gone")
	}
	a.put(policies, "a", "bad", policy(1, "2"))
	until(t, "closed", func() bool { return principal() == "" })
	// What only stands in is no good version: the next bad one closes what it selects itself.
	other := policy(1, "2")
	other["spec"].(object)["selector"] = object{"matchLabels": object{"app": "y"}}
	a.put(policies, "a", "bad", other)
	until(t, "closed for others", func() bool {
		return r.get(kinds.AuthorizationPolicy, "a", "bad").Spec.(*securityv1.AuthorizationPolicy).Selector.MatchLabels["app"] == "y"
	})
	a.drop(policies, "a", "bad")
	until(t, "gone", func() bool {
		return r.get(kinds.AuthorizationPolicy, "a", "bad") == nil && !strings.Contains(fmt.Sprint(r.Findings()), "a/bad")
	})
}

func TestOtherObjectsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	const sidecars = "sidecars.networking.istio.io"
	a.put(sidecars, "a", "s", object{"spec": object{"egress": 1}})
	a.put(sidecars, "a", "newer", object{"spec": object{"newerField": 1, "egress": []any{object{"hosts": []any{"./*"}}}}})
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar}})
	r.synced()
	if r.get(kinds.Sidecar, "a", "s") != nil || hostOf(r.get(kinds.Sidecar, "a", "newer")) != "./*" {
		t.Error("left out what is good, or not what is bad")
	}
	if d := r.finding("UnknownField"); d.Severity != diag.Warning || d.Object != "Sidecar a/newer" || d.Field != "spec.newerField" {
		t.Errorf("%+v", d)
	}
	r.finding("Unusable")
	a.put(sidecars, "a", "s", sidecar("./*"))
	until(t, "mended", func() bool { return hostOf(r.get(kinds.Sidecar, "a", "s")) == "./*" })
	a.put(sidecars, "a", "s", object{"spec": object{"egress": 1}})
	r.finding("Unusable")
	if hostOf(r.get(kinds.Sidecar, "a", "s")) != "./*" {
		t.Error("the last good version is gone")
	}
}

func TestHealthOfEntries(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.WorkloadEntry)
	put := func(status string) {
		a.put("workloadentries.networking.istio.io", "a", "w", object{
			"metadata": object{"generation": 1}, "spec": object{"address": "1.2.3.4"}, "status": object{"conditions": []any{object{"type": "Healthy", "status": status}}},
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
			"metadata": object{"generation": 1}, "spec": object{"hosts": []any{"a.example"}, "resolution": "DNS", "ports": []any{object{"number": 80, "name": "http"}}},
			"status": object{"addresses": addresses},
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
