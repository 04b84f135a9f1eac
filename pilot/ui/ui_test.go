package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	meshconfig "github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/registry"
)

// rig is a page over a mesh of one service and any number of proxies.
type rig struct {
	*UI
	now     time.Time
	proxies int
	asked   int // how often the proxies were asked for
	failing bool
	log     *pushes.Log
	world   world

	questions int // how often all replicas were asked about an object
}

// world is a World of one snapshot.
type world struct {
	snapshot *snapshot.Snapshot
	objects  []*kinds.Object
}

func (w *world) Snapshot() *snapshot.Snapshot { return w.snapshot }

func (w *world) Objects() []*kinds.Object { return w.objects }

func (w *world) Origin(k kinds.Key) *kinds.Object {
	for _, o := range w.objects {
		if o.Key == k {
			return o
		}
	}
	return nil
}

func (*world) Findings() []diag.Diagnostic {
	return []diag.Diagnostic{{
		Severity: diag.Warning, Code: "IST0101", Object: "VirtualService a/web", Message: "there is no host other", Fix: "name one",
		File: "web.yaml", Line: 3,
	}}
}

func (*world) Sources(*envoy.Resource) []pushes.Object {
	return []pushes.Object{{Kind: "Service", Namespace: "a", Name: "web"}}
}

const canary = "CANARY"

func (r *rig) Clients() []xds.Client {
	r.asked++
	list := make([]xds.Client, r.proxies)
	for i := range list {
		list[i] = xds.Client{
			ID: fmt.Sprintf("web-%04d.a-%d", i, i), Address: "10.0.0.1:4000", Connected: time.Unix(100, 0),
			Proxy: &node.Proxy{ID: fmt.Sprintf("web-%04d.a", i), Namespace: "a", Type: node.Sidecar, Cluster: "Kubernetes", Version: "1.31.1"},
			Types: map[string]session.TypeStatus{envoy.ClusterType: {Sent: "n1", Acked: "n1", Wildcard: true, SentAt: time.Unix(200, 0)}},
		}
	}
	if r.failing {
		list[len(list)-1].Types[envoy.ListenerType] = session.TypeStatus{
			Sent: "n2", LastError: "no <b>such</b> filter", LastErrorAt: time.Unix(300, 0),
		}
	}
	return list
}

// progressOf is what the proxies of a rig have acknowledged.
type progressOf struct{ *rig }

func (p progressOf) Briefs(keys []kinds.Key) []progress.Brief {
	list := make([]progress.Brief, len(keys))
	for i, k := range keys {
		a := p.answer(k)
		list[i] = progress.Brief{State: a.State, Why: a.Why, Proxies: a.Proxies}
	}
	return list
}

func (progressOf) Find(text, cluster string) (kinds.Key, error) {
	list, err := kinds.Parse(text)
	if err != nil {
		return kinds.Key{}, err
	}
	list[0].Cluster = cluster
	return list[0], nil
}

func (p progressOf) Ask(_ context.Context, q progress.Question) progress.Answer {
	p.questions++
	a := p.answer(q.Key)
	a.Uptime = float64(p.questions)
	return a
}

func (p progressOf) answer(k kinds.Key) progress.Answer {
	a := progress.Answer{Object: progress.Object{Kind: k.Kind.Name, Name: k.Name}, Generation: 4, State: progress.InForce, Counted: true}
	a.Proxies = progress.Proxies{Connected: p.proxies, Concerned: p.proxies, InForce: p.proxies}
	if p.failing {
		a.State = progress.Rejected
		a.Proxies.InForce, a.Proxies.Rejected = p.proxies-1, 1
		a.Owing = []progress.Owing{{
			Proxy: "web-0000.a", State: "rejected", Since: time.Unix(300, 0), Type: "rds", Message: "no <b>such</b> header",
		}}
	}
	return a
}

func (p progressOf) AskHistory(context.Context, kinds.Key) progress.History {
	return progress.History{Versions: []progress.Past{{Generation: 4, Manager: "kubectl", Proxies: p.proxies, Restore: "kubectl apply"}}}
}

func (r *rig) Dump(id, typeURL string) ([]*envoy.Resource, bool) {
	switch typeURL {
	case envoy.ClusterType:
		return []*envoy.Resource{envoy.NewResource("outbound", &clusterv3.Cluster{Name: "outbound"})}, true
	case envoy.SecretType:
		return []*envoy.Resource{envoy.NewResource("tls", &tlsv3.Secret{Name: canary}).Redacted()}, true
	}
	return nil, false
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{now: time.Unix(1000, 0), proxies: 3, log: pushes.New(pushes.Options{})}
	r.world.objects = []*kinds.Object{{
		Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}, Position: "/mesh/web.yaml:3:1",
		Spec: &networkingv1.VirtualService{Hosts: []string{
			"web",
		}, Http: []*networkingv1alpha3.HTTPRoute{{Route: []*networkingv1alpha3.HTTPRouteDestination{
			{Destination: &networkingv1alpha3.Destination{Host: "other"}, Weight: 90},
			{Destination: &networkingv1alpha3.Destination{Host: "web"}, Weight: 10},
		}}}},
	}}
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: meshconfig.Default()})
	svc := &registry.Service{
		Host: "web.a.svc.cluster.local", Namespace: "a", Name: "web",
		Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}},
	}
	b.ApplyRegistry(registry.Changes{Services: map[registry.ServiceKey]*registry.Service{svc.Key(): svc}})
	b.Apply([]kinds.Change{{Key: r.world.objects[0].Key, Object: r.world.objects[0]}})
	r.world.snapshot = b.Commit(time.Time{})
	r.log.Add(pushes.Commit{
		Revision: 7, Objects: []pushes.Object{{Kind: "VirtualService", Namespace: "a", Name: "web", Position: "/mesh/web.yaml:3:1"}},
	})
	r.UI = New(Options{
		World: &r.world, Proxies: r, Pushes: r.log, Progress: progressOf{r}, Version: "1", Domain: "cluster.local",
		Now: func() time.Time { return r.now },
	})
	t.Cleanup(r.Close)
	return r
}

func (r *rig) get(t *testing.T, path string, tag ...string) *httptest.ResponseRecorder {
	t.Helper()
	q := httptest.NewRequest(http.MethodGet, path, nil)
	if len(tag) > 0 {
		q.Header.Set("If-None-Match", tag[0])
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, q)
	return w
}

func (r *rig) json(t *testing.T, path string, to any) {
	t.Helper()
	w := r.get(t, path)
	if err := json.Unmarshal(w.Body.Bytes(), to); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %v %s", path, w.Code, err, w.Body)
	}
}

// TestPolicy: every answer forbids the browser whatever does not come from the page itself, and the files of the page
// need nothing else: no script or style in the HTML, nothing from elsewhere, no text that becomes HTML.
func TestPolicy(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{
		"/ui", "/ui/", "/ui/app.js", "/ui/style.css", "/ui/icon.svg", "/ui/api/summary", "/ui/api/nothing", "/ui/nothing", "/ui/../go.mod",
	} {
		h := r.get(t, path).Header()
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'none'", "require-trusted-types-for 'script'",
		} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %s in %q", path, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, h)
		}
	}
	inline := regexp.MustCompile(`(?i)<script(>| [^>]*>)[^<]|<style|\son[a-z]+=|style=|javascript:`)
	elsewhere := regexp.MustCompile(`https?://|["'(]//`)
	asHTML := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\('style'`)
	n := 0
	err := fs.WalkDir(files, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		s := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a namespace, which nobody fetches
		if strings.HasSuffix(path, ".html") && inline.MatchString(s) {
			t.Errorf("%s has script or style inside: %q", path, inline.FindString(s))
		}
		if elsewhere.MatchString(s) {
			t.Errorf("%s names another host: %q", path, elsewhere.FindString(s))
		}
		if asHTML.MatchString(s) {
			t.Errorf("%s makes HTML of text: %q", path, asHTML.FindString(s))
		}
		w := r.get(t, strings.Replace(path, "static", "/ui", 1))
		if w.Code != http.StatusOK || w.Body.String() != string(text) || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		return nil
	})
	if err != nil || n < 8 {
		t.Errorf("%d files: %v", n, err)
	}
}

// TestAnswers: each part of the page answers, and says what it is about.
func TestAnswers(t *testing.T) {
	r := newRig(t)
	r.failing = true
	for path, wants := range map[string][]string{
		"summary": {
			`"revision":1`, `"services":1`, `"all":3`, `"SYNCED":2`, `"ERROR":1`, `"warning":1`, `"namespaces":["a"]`, `"push":7`,
		},
		"proxies": {
			`"total":3`, `"id":"web-0002.a"`, `"state":"ERROR"`, `"error":"no \u003cb\u003esuch`, `"subscribed":"all"`, `"sent":200000`,
		},
		"objects": {
			`"id":"VirtualService.networking.istio.io/web.a"`, `"position":"/mesh/web.yaml:3:1"`, `"state":"rejected","proxies":3,"inForce":2`,
			`"findings":1,"severity":"warning"`,
		},
		"object?object=VirtualService/web.a": {
			`"state":"rejected"`, `"concerned":3,"inForce":2`, `"proxy":"web-0000.a"`, `no \u003cb\u003esuch`, `"manager":"kubectl"`,
			`"restore":"kubectl apply"`, `"position":"/mesh/web.yaml:3:1"`,
		},
		"mesh": {
			`"id":"web.a.svc.cluster.local"`, `"80 http"`, `"to":"other.a.svc.cluster.local","weight":90`, `"known":false`,
			`"object":"VirtualService a/web"`, `"proxies":3`,
		},
		"findings":                         {`"code":"IST0101"`, `"fix":"name one"`},
		"pushes":                           {`"id":7`, `"position":"/mesh/web.yaml:3:1"`},
		"config?proxy=web-0000.a&type=cds": {`"total":1`, `"name":"outbound"`},
		"resource?proxy=web-0000.a&type=cds&name=outbound": {
			`"name":"web"`, `"value":{"@type"`, `"defaults":{"@type"`, `connectionPoolPerDownstreamConnection`,
		},
		"resource?proxy=web-0000.a&type=sds&name=tls": {`"hidden":true`},
	} {
		w := r.get(t, "/ui/api/"+path)
		text := strings.ReplaceAll(w.Body.String(), ": ", ":") // protojson puts spaces in at random
		for _, want := range wants {
			if w.Code != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s: %d, no %s in %s", path, w.Code, want, text)
			}
		}
		if strings.Contains(text, canary) {
			t.Errorf("%s shows what is in a secret", path)
		}
	}
	for path, code := range map[string]int{
		"nothing": 404, "object?object=x": 400,
		"proxies?limit=x": 400, "proxies?offset=-1": 400, "config?proxy=x&type=nothing": 400, "config?type=cds": 400,
		"resource?proxy=web-0000.a&type=cds&name=gone": 404, "proxies?q=" + strings.Repeat("x", 2000): 400,
	} {
		if w := r.get(t, "/ui/api/"+path); w.Code != code {
			t.Errorf("%s: %d, want %d", path[:min(len(path), 40)], w.Code, code)
		}
	}
	q := httptest.NewRequest(http.MethodPost, "/ui/api/summary", nil)
	w := httptest.NewRecorder()
	if r.Handler().ServeHTTP(w, q); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", w.Code)
	}
}

// TestPaging: of 5000 proxies an answer has the rows that were asked for, and never more than a bounded number. Those
// that reject something come first.
func TestPaging(t *testing.T) {
	r := newRig(t)
	r.proxies, r.failing = 5000, true
	var p rows[proxyRow]
	r.json(t, "/ui/api/proxies?limit=1000000", &p)
	if p.Total != 5000 || p.All != 5000 || len(p.Rows) != maxRows || p.Rows[0].State != debug.Failed || p.Rows[1].ID != "web-0000.a" {
		t.Errorf("%d of %d: %+v", len(p.Rows), p.Total, p.Rows[0])
	}
	r.json(t, "/ui/api/proxies?q=WEB-12&offset=40&limit=20", &p)
	if p.Total != 100 || len(p.Rows) != 20 || p.Rows[0].ID != "web-1240.a" || p.Offset != 40 {
		t.Errorf("%d of %d, from %s", len(p.Rows), p.Total, p.Rows[0].ID)
	}
	r.json(t, "/ui/api/proxies?state=ERROR", &p)
	if p.Total != 1 {
		t.Errorf("%d with errors", p.Total)
	}
	r.json(t, "/ui/api/proxies?namespace=b", &p)
	if p.Total != 0 || p.Rows == nil {
		t.Errorf("%d of another namespace", p.Total)
	}
	var o rows[objectRow]
	for state, want := range map[string]int{"": 1, "behind": 1, "unused": 0, "findings": 1} {
		if r.json(t, "/ui/api/objects?state="+state, &o); o.Total != want {
			t.Errorf("%d objects %s", o.Total, state)
		}
	}
}

// TestOneMakingForAll: however many viewers ask, and whatever for, the proxies are asked once in a while, which grows
// with what that costs. Who has the answer already is told so.
func TestOneMakingForAll(t *testing.T) {
	r := newRig(t)
	var tag string
	for range 100 {
		w := r.get(t, "/ui/api/proxies?q=web")
		tag = w.Header().Get("ETag")
		r.get(t, "/ui/api/summary")
		r.get(t, "/ui/api/mesh")
	}
	if r.asked != 1 {
		t.Errorf("the proxies were asked %d times", r.asked)
	}
	if w := r.get(t, "/ui/api/proxies?q=web", tag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.now = r.now.Add(2 * time.Second)
	if w := r.get(t, "/ui/api/proxies?q=web", tag); w.Code != http.StatusNotModified || r.asked != 2 {
		t.Errorf("asked again, and nothing is new: %d, %d", w.Code, r.asked)
	}
	r.now, r.failing = r.now.Add(2*time.Second), true
	if w := r.get(t, "/ui/api/proxies?q=web", tag); w.Code != http.StatusOK || r.asked != 3 {
		t.Errorf("there is something new: %d, %d", w.Code, r.asked)
	}
	for i := range 1000 {
		r.get(t, fmt.Sprint("/ui/api/proxies?q=", i))
	}
	if n := r.encoded.Len(); n > maxEncoded {
		t.Errorf("%d answers are kept", n)
	}
	r.forget()
	if r.encoded.Len() != 0 || r.UI.proxies.value != nil || r.watched.Len() != 0 {
		t.Error("what was made stays without viewers")
	}

	slow := section[int]{}
	now := time.Unix(0, 0)
	made := 0
	slow.build = func() int { made++; now = now.Add(100 * time.Millisecond); return made }
	for range 100 {
		slow.get(func() time.Time { return now })
		now = now.Add(100 * time.Millisecond)
	}
	if made > 1 {
		t.Errorf("in ten seconds it was made %d times, each of a tenth", made)
	}
}

// TestObjectsShareTime: all viewers of an object share its page, the pages of all objects share the time of one
// section, and not more than some are kept.
func TestObjectsShareTime(t *testing.T) {
	r := newRig(t)
	of := func(i int) string { return fmt.Sprintf("/ui/api/object?object=VirtualService/web-%d.a", i) }
	var tag string
	for range 100 {
		tag = r.get(t, of(0)).Header().Get("ETag")
	}
	if r.questions != 1 {
		t.Errorf("all replicas were asked %d times", r.questions)
	}
	r.now = r.now.Add(minWait)
	if w := r.get(t, of(0), tag); w.Code != http.StatusNotModified || r.questions != 2 {
		t.Errorf("asked again, and nothing is new: %d, %d", w.Code, r.questions)
	}
	r.now, r.failing = r.now.Add(minWait), true
	if w := r.get(t, of(0), tag); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "rejected") {
		t.Errorf("there is something new: %d %s", w.Code, w.Body)
	}
	for i := range 100 {
		r.get(t, of(i))
	}
	if n := r.watched.Len(); n != maxObjects {
		t.Errorf("%d objects are kept", n)
	}
	s := section[int]{sharers: four{}}
	if alone, shared := (&section[int]{}).waitAfter(20*time.Millisecond), s.waitAfter(20*time.Millisecond); shared != 4*alone {
		t.Errorf("a section that shares its time with three others waits for %s, and else for %s", shared, alone)
	}
}

// four is a list of four sections.
type four struct{}

func (four) Len() int { return 4 }

// TestCostIsShared: what it costs to encode a section puts off its next making as what it costs to make does, and the
// next one begins anew.
func TestCostIsShared(t *testing.T) {
	now := time.Unix(0, 0)
	made := 0
	s := section[int]{build: func() int { made++; now = now.Add(20 * time.Millisecond); return made }}
	get := func(after time.Duration) {
		now = now.Add(after)
		s.get(func() time.Time { return now })
	}
	get(0)
	s.charge(80 * time.Millisecond)
	get(share*100*time.Millisecond - time.Millisecond)
	if made != 1 {
		t.Error("it is made again too soon after it was encoded")
	}
	get(time.Millisecond)
	get(share * 20 * time.Millisecond)
	if made != 3 {
		t.Errorf("made %d times", made)
	}
	// What another section costs does not make one that reads it old.
	cheap := section[int]{build: func() int { made++; return made }, before: func() { now = now.Add(time.Second) }}
	cheap.get(func() time.Time { return now })
	now = now.Add(minWait)
	cheap.get(func() time.Time { return now })
	if made != 5 {
		t.Errorf("made %d times", made)
	}
}

// TestBusy: beyond a number of requests at a time, more are refused.
func TestBusy(t *testing.T) {
	r := newRig(t)
	for range maxRequests {
		r.slots <- struct{}{}
	}
	if w := r.get(t, "/ui/api/summary"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d", w.Code)
	}
}

// others answer as other replicas do.
type others []replicas.Answer

func (o others) Ask(context.Context, string) []replicas.Answer { return o }

// TestElsewhere: proxies that other replicas serve are shown with the name of the replica, and replicas that do not
// answer with the reason.
func TestElsewhere(t *testing.T) {
	r := newRig(t)
	if text := r.get(t, "/ui/api/summary").Body.String(); strings.Contains(text, "replica") {
		t.Errorf("replicas of a server without others: %s", text)
	}
	r.now = r.now.Add(time.Minute)
	r.o.Name = "istiod-0"
	r.o.Replicas = others{
		{
			Peer: replicas.Peer{Name: "istiod-1"}, Version: "1",
			JSON: json.RawMessage(`[{"proxy": "far.b", "resources": {"x": {"type": "lds", "state": "ERROR", "lastError": "no"}}}]`),
		},
		{Peer: replicas.Peer{Name: "istiod-2"}, Err: errors.New("it did not answer within 2s")},
	}
	var summary struct {
		Proxies  map[string]int
		Replicas []replica
	}
	must.Succeed(t, json.Unmarshal(r.get(t, "/ui/api/summary").Body.Bytes(), &summary))
	if summary.Proxies["all"] != r.proxies+1 || len(summary.Replicas) != 3 || !summary.Replicas[0].Self ||
		summary.Replicas[2].Error != "it did not answer within 2s" {
		t.Errorf("%+v", summary)
	}
	var page struct{ Rows []proxyRow }
	must.Succeed(t, json.Unmarshal(r.get(t, "/ui/api/proxies?q=far").Body.Bytes(), &page))
	if len(page.Rows) != 1 || page.Rows[0].Replica != "istiod-1" || page.Rows[0].Namespace != "b" || page.Rows[0].State != debug.Failed {
		t.Errorf("%+v", page)
	}
}

// later keeps the functions that were started.
type later []func()

func (l *later) start(fn func()) { *l = append(*l, fn) }

// TestSlowReplicas: a section that has waited for a replica is built in the background from then on, once at a time,
// while viewers see the last one. It does not count as work.
func TestSlowReplicas(t *testing.T) {
	clock := time.Unix(1000, 0)
	now := func() time.Time { return clock }
	var started later
	n, takes := 0, 2*time.Second
	s := section[int]{background: &started}
	s.build = func() int {
		n++
		clock = clock.Add(takes)
		return n
	}
	get := func(want int, what string) {
		t.Helper()
		if v, _ := s.get(now); v != want {
			t.Errorf("%s: %d, want %d", what, v, want)
		}
	}
	get(1, "the first")
	clock = clock.Add(maxWait / 2)
	for range 3 {
		get(1, "while the second is built")
	}
	if len(started) != 1 {
		t.Fatalf("%d builds began", len(started))
	}
	takes = time.Millisecond
	started[0]()
	get(2, "the second")
	clock = clock.Add(maxWait)
	get(3, "the replica answers again")
	if len(started) != 1 {
		t.Errorf("%d builds began", len(started))
	}
}
