package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
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

// TestKeepsVersions checks for how long a session keeps the versions that a client has named.
func TestKeepsVersions(t *testing.T) {
	versions := map[string]string{"a": "1", "gone": "1"}
	type step struct {
		request *discoveryv3.DeltaDiscoveryRequest // nil if the client has been quiet
		keeps   bool                               // after the responses
	}
	first := func(url string, names ...string) *discoveryv3.DeltaDiscoveryRequest {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: names, InitialResourceVersions: versions}
	}
	acknowledge := func(url string) *discoveryv3.DeltaDiscoveryRequest {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: "last"}
	}
	for _, c := range []struct {
		name    string
		divided bool
		steps   []step
	}{
		{"removed clusters stay until the client is quiet and has acknowledged their removal", false, []step{
			{first(envoy.ClusterType), true}, {acknowledge(envoy.ClusterType), true}, {nil, true}, {acknowledge(envoy.ClusterType), false},
		}},
		{"assignments are compared at once", false, []step{{first(envoy.EndpointType, "a"), false}}},
		{"listeners that are gone are removed at once", false, []step{
			{first(envoy.ListenerType), true}, {acknowledge(envoy.ListenerType), false},
		}},
		{"virtual hosts of a client that cannot take them on demand", false, []step{{first(envoy.VirtualHostType), false}}},
		{"virtual hosts wait for route configurations", true, []step{
			{first(envoy.VirtualHostType), true}, {first(envoy.RouteType, "a"), true}, {acknowledge(envoy.VirtualHostType), false},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := xdstest.NewTranslator()
			snap := f.Publish(true, "cds a=1", "eds a=1", "lds a=1", "rds a=1")
			s := newTestSession(f, quiet{}, true)
			s.divided = c.divided
			s.Start(snap)
			for i, step := range c.steps {
				if step.request == nil {
					s.EndResuming()
				} else {
					if step.request.ResponseNonce != "" {
						step.request.ResponseNonce = s.StatusOf(step.request.TypeUrl).Sent
					}
					_, err := ask(s, step.request)
					must.Succeed(t, err)
				}
				for s.Next() != nil {
				}
				if got := s.KeepsVersions(); got != step.keeps {
					t.Fatalf("after step %d: %v, want %v", i, got, step.keeps)
				}
			}
		})
	}

	f := xdstest.NewTranslator()
	s := newTestSession(f, quiet{}, true)
	s.SetSnapshot(f.Publish(true, "eds a=1"))
	_, err := ask(s, first(envoy.EndpointType, "a"))
	must.Succeed(t, err)
	_, err = ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesUnsubscribe: []string{"a"}})
	must.Succeed(t, err)
	if !s.KeepsVersions() {
		t.Error("versions are gone before they are compared")
	}
	s.Start(s.Snapshot())
	for s.Next() != nil {
	}
	if s.KeepsVersions() {
		t.Error("versions of assignments stay although the client has unsubscribed from them")
	}
}
