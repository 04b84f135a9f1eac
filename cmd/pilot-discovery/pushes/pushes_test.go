package pushes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/proxystatus"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// TestRejectedWithoutPush: what a proxy rejects when it connects is shown, though no push caused it.
func TestRejectedWithoutPush(t *testing.T) {
	page := pushes.Page{Unprompted: pushes.Push{Rejections: []pushes.Rejection{{
		Proxy: "web-1.shop", Type: "cds", Message: "no such thing", Resources: []string{"outbound|80||cart"},
		Sources: []pushes.Object{{Kind: "EnvoyFilter", Namespace: "shop", Name: "odd", Position: "mesh/odd.yaml:3"}},
	}}}}
	const want = "asked for: web-1.shop rejected CDS: no such thing\n  in outbound|80||cart\n  made of EnvoyFilter shop/odd " +
		"(mesh/odd.yaml:3)\n"
	for _, list := range [][]pushes.Push{nil, {{ID: 7}}} {
		page.Pushes = list
		for output, shown := range map[string]bool{"table": true, "wide": true, "name": false} {
			var out bytes.Buffer
			w := writer{out: &out, output: output}
			must.Succeed(t, w.page(allPushes{Page: page}))
			if got := out.String(); strings.HasSuffix(got, want) != shown {
				t.Errorf("-o %s of %d pushes: %s", output, len(list), got)
			}
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

// TestListIsCut: a list that cannot be written is an error, in each form.
func TestListIsCut(t *testing.T) {
	all := []debug.ProxyStatus{{ProxyID: "web-1.shop"}}
	for _, output := range cli.ListFormats() {
		for _, args := range [][]string{nil, {"web-1.shop"}} {
			if err := proxystatus.ShowProxies(full{}, all, args, output); err == nil {
				t.Errorf("-o %s %v: no error", output, args)
			}
		}
	}
}

// TestPushesOfReplicas: the last pushes of all replicas are one list by time, and each names its replica.
func TestPushesOfReplicas(t *testing.T) {
	answer := func(r debug.Replica, page pushes.Page) debug.Replica {
		text, err := json.Marshal(page)
		must.Succeed(t, err)
		r.Answer = text
		return r
	}
	push := func(id uint64) pushes.Push { return pushes.Push{ID: id, Time: time.Unix(int64(id), 0)} }
	one := answer(debug.Replica{Name: "istiod-0", Self: true}, pushes.Page{Newest: 4, Pushes: []pushes.Push{push(1), push(4)}})
	two := answer(debug.Replica{Name: "istiod-1"}, pushes.Page{Newest: 3, Pushes: []pushes.Push{push(2), push(3)}})
	dead := debug.Replica{Name: "istiod-2", Error: "it did not answer within 2s"}
	all, err := mergePushes([]debug.Replica{one, two, dead}, 3)
	must.Succeed(t, err)
	var said, out bytes.Buffer
	w := writer{out: &out, said: &said, output: "table"}
	must.Succeed(t, w.page(all))
	text := out.String()
	for _, part := range []string{"REPLICA", "istiod-1", "istiod-0", "\nistiod-2 did not answer: it did not answer within 2s\n"} {
		at := strings.Index(text, part)
		if at < 0 {
			t.Fatalf("no %q, in order, in\n%s", part, out.String())
		}
		text = text[at:]
	}
	if len(all.Pushes) != 3 || all.Pushes[0].ID != 2 || all.Pushes[2].Replica != "istiod-0" || len(all.Replicas) != 3 ||
		all.newest["istiod-1"] != 3 {
		t.Errorf("%+v", all)
	}
	single, err := mergePushes([]debug.Replica{one}, 0)
	must.Succeed(t, err)
	if len(single.Replicas) > 0 || len(single.Pushes) != 2 || single.Pushes[0].Replica != "" {
		t.Errorf("one replica: %+v", single)
	}
}

// TestWatchOfPushes: a watch writes a push once it is acknowledged, or after some time, and goes on when a server
// begins to count again. It asks the only replica for what it has not written, and several for all.
func TestWatchOfPushes(t *testing.T) {
	push := func(id uint64, pending int64) pushes.Push {
		return pushes.Push{ID: id, Proxies: 1, Pending: pending, Time: time.Unix(int64(id), 0)}
	}
	steps := [][]pushes.Push{
		{push(7, 0), push(8, 1), push(9, 0)},
		{push(8, 0), push(9, 0), push(10, 1)},
		{push(1, 0)}, // started again
	}
	want := "6\n7\n8\n9\n1\n"
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var queries []string
		w := writer{out: &out, said: io.Discard, output: "name"}
		left := steps
		ask := func(_ context.Context, query string) (pushes.Page, error) {
			queries = append(queries, query)
			switch {
			case len(left) == 0:
				return pushes.Page{}, io.EOF
			case len(left) == 1 && query != "since=0":
				return pushes.Page{Newest: 1}, nil
			}
			page := pushes.Page{Newest: left[0][len(left[0])-1].ID, Pushes: left[0]}
			left = left[1:]
			return page, nil
		}
		first := allPushes{Page: pushes.Page{Newest: 6, Pushes: []pushes.Push{push(6, 0)}}, newest: map[string]uint64{"": 6}}
		if err := w.watch(t.Context(), nextOfOne(ask), first); !errors.Is(err, io.EOF) || out.String() != want {
			t.Errorf("%v: %q, want %q", err, out.String(), want)
		}
		if want := []string{"watch&since=6", "since=7", "since=9", "since=0", "watch&since=1"}; !slices.Equal(queries, want) {
			t.Errorf("asked %q, want %q", queries, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := writer{out: &out, said: io.Discard, output: "name"}
		page := func(list []pushes.Push, newest uint64) allPushes {
			for i := range list {
				list[i].Replica = "a"
			}
			return allPushes{Page: pushes.Page{Pushes: list}, Replicas: make([]replicaState, 2), newest: map[string]uint64{"a": newest}}
		}
		ends := time.Now().Add(2 * patience)
		ask := func(context.Context, int) (allPushes, error) {
			if time.Now().After(ends) {
				return allPushes{}, io.EOF
			}
			return page([]pushes.Push{push(6, 0), push(7, 1), push(8, 0)}, 8), nil
		}
		if err := w.watch(t.Context(), nextOfAll(ask), page([]pushes.Push{push(6, 0)}, 6)); !errors.Is(err, io.EOF) ||
			out.String() != "6\n7\n8\n" {
			t.Errorf("%v: %q: a push that is never acknowledged is written in the end, once", err, out.String())
		}
	})
}
