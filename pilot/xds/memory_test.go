package xds

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// setMost sets how many small first configurations may be sent at a time.
func (m *memory) setMost(configurations int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.first = true, firstLeast
	m.most = configurations * m.first
}

// queued waits until a number of streams wait for a place.
func (r *rig) queued(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " streams wait"), func() bool { return r.server.admission.memory.places.Waiting() == n })
}

// acknowledge acknowledges a response.
func (c *deltaClient) acknowledge(m *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
}

// TestPlaces checks that streams get their first configuration in the order in which they came while there is memory
// for one only, and that a stream gives its place back in every way in which it can end.
func TestPlaces(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "lds l=1")
	r.server.admission.memory.setMost(1)
	first := r.delta("first.a")
	m := first.expect("cds a=1")
	var others []*deltaClient
	for i := range 5 {
		others = append(others, r.delta(fmt.Sprintf("other%d.a", i)))
		r.queued(i + 1)
	}
	others[0].cancel() // while it waits
	r.queued(4)
	first.acknowledge(m)
	others[1].expect("cds a=1")
	r.queued(3)
	others[1].cancel() // while it has the place
	m = others[2].expect("cds a=1")
	r.queued(2)
	others[2].send(&discoveryv3.DeltaDiscoveryRequest{}) // which is an error
	others[3].expect("cds a=1")
	r.queued(1)
	for _, c := range r.server.streams() {
		c.post(func(*session.Session) { // after a while without an answer
			if c.deadlines.waits(placed) {
				c.deadlines.set(placed, time.Now())
			}
		})
	}
	others[4].expect("cds a=1")
	r.queued(0)

	first.subscribe("rds", "r") // it has had its place
	first.expect("rds r=none")
	r.publish(true, "cds a=2")
	for _, c := range []*deltaClient{first, others[3], others[4]} {
		c.expect("cds a=2")
	}
}

// TestPlacesOfResumers checks that a client that names versions while it waits for a place keeps its turn and gives the
// place back, and that a client that lacks most of what it should have waits for a place although it names versions.
func TestPlacesOfResumers(t *testing.T) {
	r := newRig(t)
	large := strings.Repeat("x", firstLeast)
	r.publish(true, "cds a=1 b="+large, "lds l=1")
	r.server.admission.memory.setMost(1)
	first := r.delta("first.a")
	m := first.expect("cds a=1 b=" + large)
	second := r.delta("second.a")
	r.queued(1)
	second.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ListenerType, InitialResourceVersions: map[string]string{"l": "1"}})
	stale := r.resumed("stale.a", map[string]string{"a": "old", "b": "old"})
	stale.acknowledge(stale.expect("cds a=1 b=" + large)) // the first response needs no place
	stale.subscribe("rds", "r")
	r.queued(2)
	first.acknowledge(m)
	second.acknowledge(second.expect("cds a=1 b=" + large))
	stale.expect("rds r=none")
	r.queued(0)
}

// TestAmpleMemory checks that no stream waits while there is memory for all, even if their clients acknowledge nothing.
func TestAmpleMemory(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	r.delta("first.a").expect("cds a=1")
	m := r.server.admission.memory
	eventually(t, "the size of a first configuration is known", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.known
	})
	for i := range 50 {
		r.delta(fmt.Sprintf("web%d.a", i)).expect("cds a=1")
	}
	r.queued(0)
}

// TestNoStreamsWhereMemoryIsShort checks that a server whose memory is full of what is live serves no more streams
// until it has memory, and goes on with the ones that it has.
func TestNoStreamsWhereMemoryIsShort(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	one := r.delta("one.a")
	one.expect("cds a=1")
	m := r.server.admission.memory
	m.setMost(-1)
	two := r.silent()
	two.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("two.a"), TypeUrl: envoy.ClusterType})
	eventually(t, "it waits", func() bool { return m.slots.Waiting() == 1 })
	r.publish(true, "cds a=2")
	one.expect("cds a=2")
	m.setMost(1000)
	two.expect("cds a=2")
}

// TestRefusedWhereMemoryStaysShort checks how long a stream waits for memory, and that a stream that waits for another
// one to end waits for longer, and is logged.
func TestRefusedWhereMemoryStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Default()
		var log bytes.Buffer
		a := newAdmission(1, &l, newMetrics(nil), slog.New(slog.NewTextHandler(&log, nil)))
		began := time.Now()
		a.memory.setMost(-1)
		if _, err := a.enter(t.Context(), identity.Peer{}, nil); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		if took := time.Since(began); took != l.MemoryWait {
			t.Errorf("it waited %s", took)
		}
		a.memory.setMost(1)
		leave, err := a.enter(t.Context(), identity.Peer{}, nil)
		must.Succeed(t, err)
		time.AfterFunc(10*l.MemoryWait, leave)
		leave, err = a.enter(t.Context(), identity.Peer{}, nil) // it waits for the one slot, and not for memory
		must.Succeed(t, err)
		leave()
		synctest.Wait()
		const warning = `msg="streams wait: run more replicas, or raise --maxStreams" served=1 waiting=1`
		if n := strings.Count(log.String(), warning); n != 5 { // one each minute of 300 s
			t.Errorf("%d warnings: %s", n, &log)
		}
	})
}

// TestFirstConfiguration checks the assumed size of a first configuration.
func TestFirstConfiguration(t *testing.T) {
	m := newMemory(1, 512<<20)
	want := func(what string, bytes int) {
		t.Helper()
		if m.first != bytes {
			t.Errorf("%s: %d bytes, want %d", what, m.first, bytes)
		}
	}
	m.sent(firstGuess + 1)
	want("a part that is larger than the guess", firstGuess+1)
	m.sentAll(1 << 20)
	want("the first one", 1<<20)
	m.sentAll(2 << 20)
	want("another one that is not yet whole", 1<<20)
	m.sent(8 << 20)
	want("a larger one", 8<<20)
	m.whole(1 << 20)
	want("a smaller one", 7<<20)
	for range 100 {
		m.whole(1)
	}
	want("many small ones", firstLeast)
	m.sent(512 << 20)
	want("one that is sent without an end", 128<<20)
}

// TestMemoryLeft checks that memory is short if what is live takes 85 % of the limit.
func TestMemoryLeft(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	ballast := make([]byte, 128<<20) // beside which all else is little; it is never written, and takes no memory
	runtime.GC()
	live := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(live)
	alive := int64(live[0].Value.Uint64()) //nolint:gosec // less than a process has
	for limit, want := range map[int64]bool{math.MaxInt64: false, alive / 80 * 100: false, alive / 90 * 100: true} {
		debug.SetMemoryLimit(limit)
		if left := memoryLeft(); left < 0 != want {
			t.Errorf("of a limit of %d bytes %d are live: %d are left", limit, alive, left)
		}
	}
	runtime.KeepAlive(ballast)
}
