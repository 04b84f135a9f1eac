package debug

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// settledWorld has objects that all proxies have.
type settledWorld struct {
	*world
	objects []*kinds.Object
}

func newTracker(w *world, objects []*kinds.Object) *progress.Tracker {
	s := settledWorld{w, objects}
	t := progress.New(progress.Options{Streams: s, Archive: archive.New(archive.Options{}), World: s, Judge: s})
	t.Begin(nil)
	t.Commit(&snapshot.Snapshot{Revision: 1}, nil, time.Unix(1, 0))
	return t
}

func (settledWorld) Progress(uint64, bool, int) xds.Progress {
	return xds.Progress{Published: true, Connected: 1, Concerned: 1, Settled: 1}
}

func (settledWorld) Connected(ids []string) []string { return ids }

func (settledWorld) Departed(string, int) []string { return nil }

func (settledWorld) Forget([]string, time.Time) {}

func (settledWorld) Expect() {}

func (settledWorld) Missing(int) ([]xds.Owing, int) { return nil, 0 }

func (settledWorld) Later(uint64) (int, uint64) { return 0, 0 }

func (s settledWorld) Stored(k kinds.Key) (*kinds.Object, bool, bool) {
	i := slices.IndexFunc(s.objects, func(o *kinds.Object) bool { return o.Key == k })
	if i < 0 {
		return nil, false, false
	}
	return s.objects[i], true, false
}

func (settledWorld) Selections() uint64 { return 0 }

func (settledWorld) Unusable(kinds.Key) (int64, bool) { return 0, false }

func (settledWorld) FindingsAbout(kinds.Key) []diag.Diagnostic { return nil }

func (settledWorld) Unread(kinds.Key) string { return "" }

func (settledWorld) Unneeded(kinds.Key) string { return "" }

func (settledWorld) Idle() map[string]bool { return nil }

// apiServer has a generation or an error for each object.
type apiServer struct {
	Server
	now progress.Question
	err error
}

func (s apiServer) Current(_ context.Context, k kinds.Key) (progress.Question, error) {
	s.now.Key = k
	return s.now, s.err
}

// A question about the version that the API server has is about no other one.
func TestCurrentVersion(t *testing.T) {
	for want, s := range map[string]Server{
		"reads no API server":                nil,
		`"state": "not seen"`:                apiServer{now: progress.Question{Generation: 4}},
		`"uid": "7"`:                         apiServer{now: progress.Question{Version: "x", UID: "7"}},
		"the API server does not have the":   apiServer{err: apierrors.NewNotFound(schema.GroupResource{Resource: "virtualservices"}, "web")},
		"failed to read the object from the": apiServer{err: context.DeadlineExceeded},
	} {
		a, _ := testAPI(t)
		a.o.Server = s
		code, body := get(t, a, "/debug/inforce?object=VirtualService/web.a&generation=current", here)
		if (code == http.StatusOK) == (s == nil) || !strings.Contains(body, want) || strings.Contains(body, `"in force"`) {
			t.Errorf("%q: %d %s", want, code, body)
		}
	}
}

// A service account reads about objects of its own namespace, and sees no proxy of another one.
func TestReadersOfANamespace(t *testing.T) {
	a, _ := testAPI(t)
	a.o.Authorizer = authorize.New(authorize.Options{SystemNamespace: "istio-system"})
	peer := func(namespace string) identity.Peer {
		return identity.Peer{Proof: identity.Token, ID: identity.ID{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: "reader"}}
	}
	for question, want := range map[string]map[string]bool{
		"inforce?object=VirtualService/web.a":                                        {"a": true, "b": false, "istio-system": true},
		"inforce?object=VirtualService/web.b&reader=b":                               {"a": false, "b": true, "istio-system": true},
		"inforce?object=VirtualService/web.a&cluster=far":                            {"a": false, "b": false, "istio-system": true},
		"inforce?object=GatewayClass/istio":                                          {"a": false, "b": false, "istio-system": true},
		"inforce":                                                                    {"a": false, "b": false, "istio-system": true},
		"inforce?object=Secret/tls.a":                                                {"a": true, "b": false, "istio-system": true},
		"inforce?object=secrets/tls.a&version=0":                                     {"a": false, "b": false, "istio-system": true},
		"inforce?object=VirtualService/web.a&version=0":                              {"a": true, "b": false, "istio-system": true},
		"history?object=VirtualService/web.a":                                        {"a": false, "b": false, "istio-system": true},
		"inforce?object=VirtualService/web.a&object=VirtualService/other.b":          {"a": true, "b": false, "istio-system": true},
		"inforce?object=VirtualService/web.a&proxyID=web-1.b":                        {"a": true, "b": false, "istio-system": true},
		"inforce?object=VirtualService/web.a&scope=self&connected=p.a&connected=q.b": {"a": true, "b": false, "istio-system": true},
	} {
		for namespace, allowed := range want {
			list, err := a.Resources(peer(namespace), xds.DebugType, []string{question})
			var denied *authorize.Denied
			if errors.As(err, &denied) == allowed {
				t.Errorf("%s asks %s: %v", namespace, question, err)
			}
			if allowed && namespace != "istio-system" && strings.Contains(string(list[0].Value), "q.b") {
				t.Errorf("%s asks %s: %s", namespace, question, list[0].Value)
			}
		}
	}
	x := progress.Answer{Owing: []progress.Owing{{Proxy: "web-1.a"}, {Proxy: "web-1.b"}, {Proxy: "web-1.ba"}}, More: 1}
	if got := x.For("a"); len(got.Owing) != 1 || got.Owing[0].Proxy != "web-1.a" || got.More != 3 {
		t.Errorf("a reader sees %+v", got)
	}
	if got := (progress.Answer{Owing: []progress.Owing{{Proxy: "web-1.a"}}}).For(""); len(got.Owing) != 1 || got.More != 0 {
		t.Errorf("a reader of all sees %+v", got)
	}
}

// TestInForcePage: queries, and that a question of a replica is never passed on.
func TestInForcePage(t *testing.T) {
	a, _ := testAPI(t)
	var x progress.Answer
	code, body := get(t, a, "/debug/inforce?object=virtualservice/web.a", here)
	must.Succeed(t, json.Unmarshal([]byte(body), &x))
	if code != http.StatusOK || x.State != progress.InForce || x.Version == "" || x.Proxies.InForce != 1 {
		t.Errorf("%d %s", code, body)
	}
	for query, want := range map[string]string{
		"object=VirtualService/web.a&version=" + x.Version:                   "in force",
		"object=VirtualService/web.a&version=0":                              "not seen",
		"object=VirtualService/web.a&generation=4":                           "not seen",
		"object=VirtualService/web.a&deleted":                                "not seen",
		"object=VirtualService/none.a&deleted&scope=self":                    "in force",
		"object=VirtualService/web.a&cluster=far":                            "not seen",
		"object=Secret/tls.a&scope=self":                                     "in force",
		"object=VirtualService/web.a&connected=p.a&connected=q.b&scope=self": `"q.b"`,
	} {
		if code, body := get(t, a, "/debug/inforce?"+query, here); code != http.StatusOK || !strings.Contains(body, want) ||
			strings.Contains(body, "S3CRET") || strings.Contains(query, "Secret") && strings.Contains(body, `"version"`) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	for _, question := range []string{"inforce", "inforce?object=web.a", "inforce?object=VirtualService/web.a&generation=x",
		"inforce?object=VirtualService/web.a&deleted=maybe", "inforce?object=VirtualService/web.a&scope=mesh",
		"history", "history?object=web.a", "history?object=VirtualService/web.a&scope=mesh"} {
		if code, body := get(t, a, "/debug/"+question, here); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", question, code, body)
		}
	}
	a.o.Authorizer = authorize.New(authorize.Options{SystemNamespace: "istio-system"})
	peer := identity.Peer{
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}, Proof: identity.Certificate,
	}
	for _, page := range []string{"inforce", "history"} {
		q, err := a.question(xds.DebugType, []string{page + "?object=VirtualService/web.a"})
		if err != nil || q.query.Get("scope") != "self" {
			t.Errorf("a replica is asked for %v, %v", q, err)
		}
		list, err := a.Resources(peer, xds.DebugType, []string{page + "?object=VirtualService/web.a"})
		if err != nil || len(list) != 1 || !json.Valid(list[0].Value) {
			t.Errorf("%s: %v, %v", page, list, err)
		}
	}
}
