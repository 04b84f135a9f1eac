package pushes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

// A push has its causes, its stages and what streams counted.
func TestPush(t *testing.T) {
	l := New(Options{})
	web := Object{Kind: "VirtualService", Namespace: "a", Name: "web", Position: "web.yaml:1:1"}
	l.Add(Commit{
		Revision: 7, Full: true, Received: at(0), Began: at(10), Published: at(16), Snapshot: 4 * time.Millisecond, Prepare: 2 * time.Millisecond,
		Triggers: map[string]int{"config": 1}, Objects: []Object{web}, More: 3,
	})
	x := l.Tally(7)
	for i := range 4 {
		x.Started()
		x.Sent(at(20+i), envoy.RouteType, 2, 1, 100)
	}
	x.Sent(at(30), envoy.ClusterType, 1, 0, 50)
	x.Ended(at(40), Acknowledged, false)
	x.Ended(at(41), Rejected, false)
	x.Ended(at(90), Lost, false)
	x.Ended(at(50), Acknowledged, true) // the first one again
	l.Reject(x, Rejection{Time: at(41), Proxy: "web-0.a", Type: "rds", Code: "Internal", Message: "no"}, func() []Object {
		return []Object{{Kind: "Service", Namespace: "a", Name: "web"}, web}
	})

	page := l.Since(0, 0)
	text, err := json.Marshal(page.Pushes)
	must.Succeed(t, err)
	const want = `[{"id":7,"time":"1970-01-01T00:16:40Z","full":true,"triggers":{"config":1},` +
		`"causes":[{"kind":"VirtualService","namespace":"a","name":"web","position":"web.yaml:1:1"}],"more":3,` +
		`"stages":{"throttle":10,"snapshot":4,"prepare":2,"firstSend":4,"lastSend":14,"lastAck":34,"total":50},` +
		`"proxies":4,"acked":1,"rejected":1,"lost":1,"pending":1,"responses":5,"resources":9,"removed":4,"bytes":450,` +
		`"types":[{"type":"cds","responses":1,"resources":1,"bytes":50},{"type":"rds","responses":4,"resources":8,"removed":4,"bytes":400}],` +
		`"firstSend":"1970-01-01T00:16:40.02Z","lastSend":"1970-01-01T00:16:40.03Z","lastAck":"1970-01-01T00:16:40.05Z",` +
		`"rejections":[{"push":7,"time":"1970-01-01T00:16:40.041Z","proxy":"web-0.a",` +
		`"count":1,"type":"rds","code":"Internal","message":"no","resources":null,"of":0,` +
		`"sources":[{"kind":"VirtualService","namespace":"a","name":"web","position":"web.yaml:1:1","changed":true},` +
		`{"kind":"Service","namespace":"a","name":"web"}]}]}]`
	if got := strings.ReplaceAll(string(text), time.Unix(1000, 0).Format("-07:00"), "Z"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if page.Newest != 7 || page.Oldest != 7 {
		t.Errorf("newest %d, oldest %d", page.Newest, page.Oldest)
	}
}

// However many pushes and rejections there are and however large they are, the log is bounded.
func TestBounds(t *testing.T) {
	l := New(Options{Pushes: 10, Rejections: 5, Bytes: 64 << 10})
	many := make([]Object, 1000)
	for i := range many {
		many[i] = Object{Kind: "Service", Namespace: "a", Name: fmt.Sprint(i)}
	}
	for i := range 100 {
		l.Add(Commit{Revision: uint64(i + 1), Objects: many})
		l.Reject(l.Tally(uint64(i+1)), Rejection{Message: fmt.Sprint(i)}, nil)
	}
	page := l.Since(0, 0)
	if n := len(page.Pushes); n != 10 || page.Oldest != 91 || page.Newest != 100 {
		t.Errorf("%d pushes, from %d to %d", n, page.Oldest, page.Newest)
	}
	if p := page.Pushes[0]; len(p.Causes) != MaxCauses || p.More != 1000-MaxCauses {
		t.Errorf("%d causes and %d more", len(p.Causes), p.More)
	}
	if n := len(l.Rejections()); n != 5 {
		t.Errorf("%d rejections", n)
	}
	if got := l.Since(97, 0).Pushes; len(got) != 3 || got[0].ID != 98 {
		t.Errorf("%d pushes since 97", len(got))
	}
	if got := l.Since(0, 2).Pushes; len(got) != 2 || got[1].ID != 100 {
		t.Errorf("the last two: %d", len(got))
	}
	if l.Tally(90) != nil || l.Tally(101) != nil || l.Tally(91) == nil {
		t.Error("which tallies there are")
	}
	long := Object{Name: strings.Repeat("x", 1<<10)}
	for i := range 100 {
		l.Add(Commit{Revision: uint64(i + 101), Objects: []Object{long, long, long, long, long, long, long, long, long, long}})
	}
	if n := len(l.Since(0, 0).Pushes); n > 6 || n < 4 {
		t.Errorf("%d pushes of 11 kB in 64 kB", n)
	}
}

// What a thousand proxies say of one push is one rejection, and is traced once.
func TestSameRejectionsAreOne(t *testing.T) {
	l := New(Options{})
	l.Add(Commit{Revision: 1})
	x, traced := l.Tally(1), 0
	var mu sync.Mutex
	var all sync.WaitGroup
	reject := func(i int) {
		l.Reject(x, Rejection{Time: at(i), Proxy: fmt.Sprint("p", i), Type: "lds", Message: "no", Resources: []string{"l"}}, func() []Object {
			mu.Lock()
			defer mu.Unlock()
			traced++
			return nil
		})
	}
	reject(0)
	for i := range 1000 {
		all.Add(1)
		go func() { defer all.Done(); reject(i) }()
	}
	all.Wait()
	list := l.Since(0, 0).Pushes[0].Rejections
	if len(list) != 1 || list[0].Proxies != 1001 || list[0].Proxy != "p0" || traced != 1 {
		t.Errorf("%d rejections, traced %d times: %+v", len(list), traced, list)
	}
	l.Reject(nil, Rejection{Type: "lds", Message: "no", Resources: []string{"l"}}, nil)
	if n := len(l.Since(0, 0).Unprompted.Rejections); n != 1 {
		t.Errorf("%d rejections of no push", n)
	}
}

// Whoever waits is woken by the next push, and not held up by one that is there.
func TestWait(t *testing.T) {
	l := New(Options{})
	woken := make(chan struct{})
	go func() { l.Wait(context.Background(), 0); close(woken) }()
	l.Add(Commit{Revision: 1})
	<-woken
	l.Wait(context.Background(), 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.Wait(ctx, 1)
}

// Every type has a place of its own.
func TestTypes(t *testing.T) {
	if n := len(envoy.ShortTypes()); n > maxTypes {
		t.Errorf("%d types, and %d places", n, maxTypes)
	}
	var x *Tally // does nothing
	x.Started()
	x.Sent(at(0), envoy.ClusterType, 1, 1, 1)
	x.Ended(at(0), Lost, false)
	var l *Log
	l.Reject(l.Tally(1), Rejection{}, nil)
	if l.Unprompted() != nil {
		t.Error("a log that is none counts")
	}
}
