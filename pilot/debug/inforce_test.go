package debug

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestInForcePage: queries, and that a question of a replica is never passed on.
func TestInForcePage(t *testing.T) {
	a, _ := testAPI(t)
	var x progress.Answer
	code, body := get(t, a, "/debug/inforce?object=virtualservice/web.a&watch", here)
	must.Succeed(t, json.Unmarshal([]byte(body), &x))
	if code != http.StatusOK || x.State != progress.InForce || x.Version == "" || x.Proxies.InForce != 1 {
		t.Errorf("%d %s", code, body)
	}
	for query, want := range map[string]string{
		"object=VirtualService/web.a&version=" + x.Version:         "in force",
		"object=VirtualService/web.a&version=0":                    "not seen",
		"object=VirtualService/web.a&generation=4":                 "not seen",
		"object=VirtualService/web.a&deleted":                      "not seen",
		"object=VirtualService/none.a&deleted&scope=self":          "in force",
		"object=VirtualService/web.a&cluster=far":                  "not seen",
		"object=Secret/tls.a&scope=self":                           "in force",
		"object=VirtualService/web.a&connected=p.a,q.b&scope=self": `"q.b"`,
	} {
		if code, body := get(t, a, "/debug/inforce?"+query, here); code != http.StatusOK || !strings.Contains(body, want) ||
			strings.Contains(body, "S3CRET") || strings.Contains(query, "Secret") && strings.Contains(body, `"version"`) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	for _, query := range []string{"", "object=web.a", "object=VirtualService/web.a&generation=x", "object=VirtualService/web.a&deleted=maybe",
		"object=VirtualService/web.a&scope=mesh", "object=VirtualService/web&watch"} {
		for _, page := range []string{"inforce", "history"} {
			if code, body := get(t, a, "/debug/"+page+"?"+query, here); code != http.StatusBadRequest {
				t.Errorf("%s?%s: %d %s", page, query, code, body)
			}
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
	for range maxWatchers {
		if a.watchers.Try(identity.Holder{}) == nil {
			t.Fatal("fewer requests wait")
		}
	}
	if code, body := get(t, a, "/debug/inforce?object=VirtualService/web.a&watch", here); code != http.StatusTooManyRequests {
		t.Errorf("one more waits: %d %s", code, body)
	}
}
