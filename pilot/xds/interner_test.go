package xds

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Edits whose names look alike when they are concatenated differ.
func TestEditsOfSimilarNamesDiffer(t *testing.T) {
	l := newNameInterner()
	of := func(names []string) *envoy.Names { return l.table.Intern(slices.Clone(names)) }
	from := of([]string{"x", "a"})
	for _, c := range []struct{ remove, add, want []string }{
		{nil, []string{"b\nc"}, []string{"a", "b\nc", "x"}},
		{nil, []string{"b", "c"}, []string{"a", "b", "c", "x"}},
		{nil, []string{"bc"}, []string{"a", "bc", "x"}},
		{[]string{"a"}, []string{"x"}, []string{"x"}},
		{[]string{"a", "x"}, nil, nil},
		{nil, []string{"a", "x"}, []string{"a", "x"}},
	} {
		for range 2 { // the second time from what is kept
			if got := l.edited(from, of(c.remove), of(c.add)); !slices.Equal(got.All(), c.want) {
				t.Errorf("-%q +%q gives %q, want %q", c.remove, c.add, got.All(), c.want)
			}
		}
	}
	if once := l.edited(from, nil, of([]string{"b"})); once != l.edited(from, nil, of([]string{"b"})) {
		t.Error("the same edit gives two lists")
	}
}

// A name with a control character in it ends the stream, whichever way it comes.
func TestControlCharactersEndTheStream(t *testing.T) {
	f := newFakeTranslator()
	for _, name := range []string{"a\nb", "\x00", "é\u0085"} {
		s := newTestSession(f, quiet{}, true)
		for _, r := range []*discoveryv3.DeltaDiscoveryRequest{{ResourceNamesSubscribe: []string{name}}, {ResourceNamesUnsubscribe: []string{name}}} {
			r.TypeUrl = envoy.EndpointType
			if _, err := ask(s, r); err == nil || !strings.Contains(err.Error(), "control character") {
				t.Errorf("%q: %v", name, err)
			}
		}
		s = newTestSession(f, quiet{}, false)
		if _, err := ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNames: []string{name}}); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

// Of streams that are closed nothing stays: neither the names that they asked for, nor what was made of them.
func TestClosedStreamsAreFreed(t *testing.T) {
	const streams, requests, names = 20, 3, 2000
	f := newFakeTranslator()
	f.publish(true, "cds a=1")
	l := limits.Default()
	d, made := &differences{}, newNameInterner()
	before := heap()
	var peak uint64
	stream := func(n int) {
		s := &session{translator: forgetful{f}, observer: quiet{}, limits: &l, differences: d, interner: made, delta: true, profile: &profile{grouped: true}, proxy: &node.Proxy{ID: "web.a", Type: node.Sidecar}}
		s.start(newPush(f.publish(true), time.Unix(0, 0)).snapshot)
		for i := range requests {
			r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType}
			for j := range names {
				r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, fmt.Sprintf("%d-%d-%d-%s", n, i, j, strings.Repeat("x", 200)))
			}
			if _, err := ask(s, r); err != nil {
				t.Error(err)
				return
			}
			if got := s.next(); got == nil || len(got.Resources) != names {
				t.Errorf("stream %d is sent %v", n, got)
			}
		}
		if n == 0 {
			peak = heap() - before
		}
		runtime.KeepAlive(s)
	}
	for n := range streams {
		stream(n)
	}
	deadline := time.Now().Add(30 * time.Second)
	for heap() > before+peak/2 || made.table.Len() > 0 || kept(d) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d lists and %d differences are left, %d bytes where there were %d and one stream takes %d", made.table.Len(), kept(d), heap(), before, peak)
		}
		time.Sleep(time.Millisecond)
	}
	runtime.KeepAlive(f)
}

func kept(d *differences) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.made)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// forgetful is a translator that keeps nothing of what it gives.
type forgetful struct{ *fakeTranslator }

func (f forgetful) Get(_ *snapshot.Snapshot, _ Cohort, _ string, names *envoy.Names) (envoy.Union, error) {
	var list []*envoy.Resource
	for _, name := range names.All() {
		list = append(list, fakeResource(name, "none"))
	}
	return envoy.Union{Outbound: envoy.NewSet(list)}, nil
}
