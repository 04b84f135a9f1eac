package debug

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// others answer each question.
type others struct {
	asked   []string
	answers []replicas.Answer
}

func (o *others) Ask(_ context.Context, question string) []replicas.Answer {
	o.asked = append(o.asked, question)
	return o.answers
}

// TestReplicas: the page has what this replica answers, what others answer, and why one does not. It passes on pages
// that change nothing, and is not served to replicas, so that no question goes on from one to the next.
func TestReplicas(t *testing.T) {
	a, _ := testAPI(t)
	o := &others{answers: []replicas.Answer{
		{
			Peer: replicas.Peer{Name: "istiod-1", Address: "10.0.0.2:15012"}, Version: "2",
			JSON: json.RawMessage(`[{"proxy": "far.b", "new": {}}]`),
		},
		{Peer: replicas.Peer{Name: "istiod-2", Address: "10.0.0.3:15012"}, Err: errors.New("it did not answer within 2s")},
		{Peer: replicas.Peer{Name: "istiod-3", Address: "10.0.0.4:15012"}, Version: "1", JSON: json.RawMessage(`{"odd": 1}`)},
	}}
	a.o.Replicas, a.o.Name, a.o.Version, a.o.Pushes = o, "istiod-0", "1", pushes.New(pushes.Options{})
	ask := func(ctx context.Context, path string) (int, []byte, error) {
		code, text := get(t, a, path, here)
		return code, []byte(text), ctx.Err()
	}
	list, err := AskAll(t.Context(), ask, "syncz?namespace=a")
	must.Succeed(t, err)
	if len(list) != 4 || !list[0].Self || list[0].Name != "istiod-0" || list[2].Error != "it did not answer within 2s" ||
		len(o.asked) != 1 || o.asked[0] != "syncz?namespace=a" {
		t.Errorf("%+v, asked %q", list, o.asked)
	}
	all, err := ReadProxies(list)
	must.Succeed(t, err)
	var names []string
	for _, p := range all {
		names = append(names, p.ProxyID+" at "+p.Replica)
	}
	if got := strings.Join(names, ", "); !strings.Contains(got, " at istiod-0") || !strings.HasSuffix(got, "far.b at istiod-1") {
		t.Errorf("proxies %s", got)
	}
	lines := Incomplete(list)
	if len(lines) != 3 || lines[0] != "istiod-1 is of version 2, and istiod-0 of 1" ||
		lines[1] != "istiod-2 did not answer: it did not answer within 2s" ||
		!strings.HasPrefix(lines[2], "istiod-3 did not answer: its answer cannot be read: ") {
		t.Errorf("%q", lines)
	}
	for path, want := range map[string]int{
		"?page=pushes&limit=2": http.StatusOK, "?page=pushes&limit=x": http.StatusBadRequest, "?page=adsz&push=true": http.StatusBadRequest,
		"?page=force_disconnect&proxyID=web.a": http.StatusBadRequest, "?page=replicas": http.StatusBadRequest,
		"?page=configz": http.StatusBadRequest, "?page=inforce": http.StatusBadRequest,
		"?page=inforce&object=VirtualService/web.a": http.StatusOK,
	} {
		if code, text := get(t, a, "/debug/replicas"+path, here); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	asked := len(o.asked)
	peer := identity.Peer{
		ID: identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}, Proof: identity.Certificate,
	}
	for _, typeURL := range []string{xds.DebugType, xds.DebugType + "/replicas"} {
		pages, err := a.Resources(peer, typeURL, []string{"replicas?page=syncz"})
		if len(o.asked) > asked || err == nil && (len(pages) != 1 || json.Valid(pages[0].Value)) {
			t.Errorf("%s: %v, %v", typeURL, pages, err)
		}
	}
	if code, _ := get(t, a, "/debug/replicas", "10.0.0.9:1"); code != http.StatusUnauthorized || len(o.asked) > asked {
		t.Errorf("a stranger gets %d", code)
	}
}

// TestOneReplica: a server without others, or of a version that does not know them, answers for itself.
func TestOneReplica(t *testing.T) {
	a, _ := testAPI(t)
	for _, old := range []bool{false, true} {
		list, err := AskAll(t.Context(), func(_ context.Context, path string) (int, []byte, error) {
			if old && strings.HasPrefix(path, "/debug/replicas") {
				return http.StatusNotFound, []byte("404 page not found"), nil
			}
			code, text := get(t, a, path, here)
			return code, []byte(text), nil
		}, "syncz")
		must.Succeed(t, err)
		all, err := ReadProxies(list)
		must.Succeed(t, err)
		if len(list) != 1 || len(all) == 0 || all[0].Replica != "" || len(Incomplete(list)) > 0 {
			t.Errorf("old %t: %+v", old, list)
		}
	}
}
