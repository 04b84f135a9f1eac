package xds

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestInitialVersionsAreFreed: what a client resumes with is freed with its stream, though the Set that it was compared
// with stays.
func TestInitialVersionsAreFreed(t *testing.T) {
	f := newFakeTranslator()
	snap := f.publish(true, "cds a=1", "cds b=1")
	l := limits.Default()
	d, made := &differences{}, newNameInterner()
	connect := func(n int) {
		s := newTestSession(f, quiet{}, true)
		s.limits, s.differences, s.interner = &l, d, made
		s.start(snap)
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{}}
		for i := range 20000 {
			r.InitialResourceVersions[fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", 100))] = "1"
		}
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		for s.next() != nil {
		}
		runtime.KeepAlive(s)
	}
	connect(0)
	before := settledHeap()
	const streams = 20
	for n := range streams {
		connect(n + 1)
	}
	after := settledHeap()
	if grown := int64(after) - int64(before); grown > 8<<20 {
		t.Errorf("%d closed streams left %d MB, %d kB each", streams, grown>>20, grown/streams>>10)
	}
	runtime.KeepAlive(f)
}

// TestOversizedVersionsEvictNothing: versions that are too large to be kept evict no others.
func TestOversizedVersionsEvictNothing(t *testing.T) {
	made := newNameInterner()
	bring := func(n int, prefix string) {
		var list []entry
		for i := range n {
			list = append(list, entry{name: fmt.Appendf(nil, "%s%d", prefix, i), version: []byte("1")})
		}
		if _, err := made.initialVersions(envoy.ClusterType, list); err != nil {
			t.Fatal(err)
		}
	}
	bring(100, "a")
	if len(made.shared) != 1 {
		t.Fatal("nothing is kept")
	}
	bring(20000, "b")
	if len(made.shared) != 1 {
		t.Errorf("%d shared lists are left", len(made.shared))
	}
}

// TestUnknownTypesAreBounded: what one stream keeps of types that nobody knows.
func TestUnknownTypesAreBounded(t *testing.T) {
	f := newFakeTranslator()
	snap := f.publish(true, "cds a=1")
	l := limits.Default()
	s := newTestSession(f, quiet{}, true)
	s.limits = &l
	s.start(snap)
	before := settledHeap()
	bytes := 0
	for k := range 60 {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: fmt.Sprint("type.googleapis.com/x", k), InitialResourceVersions: map[string]string{}}
		for i := range 50000 {
			r.InitialResourceVersions[fmt.Sprintf("%d-%d-%s", k, i, strings.Repeat("x", 50))] = "1"
			bytes += 66
		}
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		for s.next() != nil {
		}
	}
	after := settledHeap()
	if kept := int64(after) - int64(before); kept > 32<<20 {
		t.Errorf("one stream that brings %d MB and acknowledges nothing keeps %d MB", bytes>>20, kept>>20)
	}
	runtime.KeepAlive(s)
}

// TestGoneClustersAreRemovedFromLateResumer: a client that resumes long after it connected has the clusters removed
// that are gone.
func TestGoneClustersAreRemovedFromLateResumer(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "nds n=1")
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: testNode("web.a"), TypeUrl: envoy.NameTableType})
	c.expect("nds n=1")
	of := r.server.streams()[0]
	if !of.ask(t.Context(), func(*session) { of.connected = of.connected.Add(-time.Minute) }) {
		t.Fatal("gone")
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{"a": "1", "gone": "1"}})
	removed := make(chan string, 8)
	go func() {
		for {
			m, err := c.stream.Recv()
			if err != nil {
				return
			}
			for _, n := range m.RemovedResources {
				removed <- n
			}
		}
	}()
	select {
	case <-removed:
	case <-time.After(resumeMax - 3*time.Second):
		t.Error("the client still has a cluster that is gone")
	}
	_ = c.stream.CloseSend()
}

// settledHeap is heap once cleanups have run.
func settledHeap() uint64 {
	for range 4 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	return heap()
}
