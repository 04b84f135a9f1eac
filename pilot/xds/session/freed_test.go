package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// A name with a control character in it ends the stream, whichever way it comes.
func TestControlCharactersEndTheStream(t *testing.T) {
	f := xdstest.NewTranslator()
	for _, name := range []string{"a\nb", "\x00", "é\u0085"} {
		s := newTestSession(f, quiet{}, true)
		for _, r := range []*discoveryv3.DeltaDiscoveryRequest{{ResourceNamesSubscribe: []string{name}},
			{ResourceNamesUnsubscribe: []string{name}}} {
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
	f := xdstest.NewTranslator()
	f.Publish(true, "cds a=1")
	l := limits.Default()
	d, made := &diff.Cache{}, wire.NewInterner()
	before := xdstest.Heap()
	var peak uint64
	stream := func(n int) {
		s := &Session{translator: forgetful{f}, observer: quiet{}, limits: &l, differences: d, interner: made,
			delta: true, profile: Profile{Grouped: true}, proxy: &node.Proxy{ID: "web.a", Type: node.Sidecar}}
		s.Start(NewPush(f.Publish(true), time.Unix(0, 0)).Snapshot)
		for i := range requests {
			r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType}
			for j := range names {
				r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, fmt.Sprintf("%d-%d-%d-%s", n, i, j, strings.Repeat("x", 200)))
			}
			if _, err := ask(s, r); err != nil {
				t.Error(err)
				return
			}
			if got := s.Next(); got == nil || len(got.Resources) != names {
				t.Errorf("stream %d is sent %v", n, got)
			}
		}
		if n == 0 {
			peak = xdstest.Heap() - before
		}
		runtime.KeepAlive(s)
	}
	for n := range streams {
		stream(n)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for xdstest.Heap() > before+peak/2 || made.Len() > 0 || d.Len() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d lists and %d differences are left, %d bytes where there were %d and one stream takes %d", made.Len(),
				d.Len(), xdstest.Heap(), before, peak)
		}
		time.Sleep(time.Millisecond)
	}
	runtime.KeepAlive(f)
}

// forgetful is a translator that keeps nothing of what it gives.
type forgetful struct{ *xdstest.Translator }

func (f forgetful) Get(_ *snapshot.Snapshot, _ cohort.Key, _ string, names *envoy.Names) (envoy.Union, error) {
	var list []*envoy.Resource
	for _, name := range names.All() {
		list = append(list, xdstest.Resource(name, "none"))
	}
	return envoy.Union{Shared: envoy.NewSet(list)}, nil
}
