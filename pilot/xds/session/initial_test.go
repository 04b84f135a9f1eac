package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestInitialVersionsAreFreed: what a client resumes with is freed with its stream, though the Set that it was compared
// with stays.
func TestInitialVersionsAreFreed(t *testing.T) {
	f := xdstest.NewTranslator()
	snap := f.Publish(true, "cds a=1", "cds b=1")
	l := limits.Default()
	d, made := &diff.Cache{}, wire.NewInterner()
	connect := func(n int) {
		s := newTestSession(f, quiet{}, true)
		s.limits, s.differences, s.interner = &l, d, made
		s.Start(snap)
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{}}
		for i := range 20000 {
			r.InitialResourceVersions[fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", 100))] = "1"
		}
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		for s.Next() != nil {
		}
		runtime.KeepAlive(s)
	}
	connect(0)
	before := xdstest.Heap()
	const streams = 20
	for n := range streams {
		connect(n + 1)
	}
	after := xdstest.Heap()
	if grown := int64(after) - int64(before); grown > 8<<20 {
		t.Errorf("%d closed streams left %d MB, %d kB each", streams, grown>>20, grown/streams>>10)
	}
	runtime.KeepAlive(f)
}

// TestUnknownTypesAreBounded: what one stream keeps of types that nobody knows.
func TestUnknownTypesAreBounded(t *testing.T) {
	histories.NoRace(t)
	f := xdstest.NewTranslator()
	snap := f.Publish(true, "cds a=1")
	l := limits.Default()
	s := newTestSession(f, quiet{}, true)
	s.limits = &l
	s.Start(snap)
	before := xdstest.Heap()
	bytes := 0
	for k := range 20 {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: fmt.Sprint("type.googleapis.com/x", k), InitialResourceVersions: map[string]string{}}
		for i := range 50000 {
			r.InitialResourceVersions[fmt.Sprintf("%d-%d-%s", k, i, strings.Repeat("x", 50))] = "1"
			bytes += 66
		}
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		for s.Next() != nil {
		}
	}
	after := xdstest.Heap()
	if kept := int64(after) - int64(before); kept > 11<<20 {
		t.Errorf("one stream that brings %d MB and acknowledges nothing keeps %d MB", bytes>>20, kept>>20)
	}
	runtime.KeepAlive(s)
}
