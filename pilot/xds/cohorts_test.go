package xds

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// pod returns the stream of a pod of a service account, with its clusters, or the error that ends it before.
func (r *rig) pod(account, pod string) (*deltaClient, error) {
	r.t.Helper()
	c := r.silent("account", account)
	// Recv says whether it has ended
	_ = c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf(account, pod), TypeUrl: envoy.ClusterType})
	_, err := c.stream.Recv()
	return c, err
}

// TestCohortsOfOneIdentity checks that where the proxies of an identity belong to cohorts of their own, for which more
// is kept than the identity may have, a proxy of it that asks for more is refused; that its other proxies are sent
// changes all the same; that another identity is served; and that there is room again when a proxy goes.
func TestCohortsOfOneIdentity(t *testing.T) {
	const each, bound = 1000, 20
	r := newRig(t, accounts(1000))
	r.fake.Each.Store(true)
	r.fake.Kept.Store(each)
	r.server.admission.cohortBytes = (bound - 1) * each // beside the first one
	r.publish(true, "cds a=1", "lds l=1")
	holder := identity.Holder{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "flood"}}
	held := func(look func(*cohorts)) {
		c, leave := r.server.admission.cohorts.Hold(holder)
		defer leave()
		c.mu.Lock()
		defer c.mu.Unlock()
		look(c)
	}
	due := func() { held(func(c *cohorts) { c.next = time.Time{} }) } // the next request has what is kept measured
	var all []*deltaClient
	var err error
	for i := 0; err == nil && i < 10*bound; i++ {
		due()
		var c *deltaClient
		if c, err = r.pod("flood", fmt.Sprintf("p%d.a", i)); err == nil {
			all = append(all, c)
		}
	}
	if len(all) != bound || status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "spiffe://cluster.local/ns/a/sa/flood") {
		t.Fatalf("%d proxies of an identity are served, and then: %v", len(all), err)
	}
	for i := range 3 * bound { // one cohort has any number of proxies
		if _, err := r.pod("web", "same.a"); err != nil {
			t.Fatalf("proxy %d of another identity: %v", i, err)
		}
	}
	r.publish(true, "cds a=2")
	for _, c := range all {
		c.expect("cds a=2")
	}
	if n := sample(t, r.reg, "pilot_xds_refused_streams", "reason", "cohorts"); n != 1 {
		t.Errorf("%v streams are counted as refused", n)
	}
	r.server.admission.cohortBytes = 0
	due()
	all[1].subscribe("lds")
	if _, err := all[1].stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a proxy that asks for another type: %v", err)
	}
	r.server.admission.cohortBytes = (bound - 1) * each
	eventually(t, "there is room again", func() bool {
		due()
		_, err := r.pod("flood", "new.a")
		return err == nil
	})
	for _, c := range all {
		c.cancel()
	}
	eventually(t, "the cohorts of streams that have ended are not remembered", func() (ok bool) {
		held(func(c *cohorts) { ok = len(c.order) == 1 && len(c.streams) == 1 })
		return ok
	})
}

// TestFewCohortsAreNotMeasured checks that nothing is measured for an identity with a few kinds of proxies, and that
// what is kept is measured no more often than it may be.
func TestFewCohortsAreNotMeasured(t *testing.T) {
	keys := cohort.NewInterner()
	c := newCohorts(fewCohorts)
	measured := 0
	ask := func() { c.kept(func([]cohort.Key) int { measured++; return 1 }) }
	for i := range fewCohorts {
		c.move(cohort.Key{}, keys.Intern(cohort.Inputs{Client: cohort.Client{Namespace: fmt.Sprint(i)}}))
		ask()
	}
	if measured != 0 {
		t.Errorf("measured %d times", measured)
	}
	c.move(cohort.Key{}, keys.Intern(cohort.Inputs{Client: cohort.Client{Namespace: "more"}}))
	c.next = time.Now().Add(-time.Second)
	ask()
	c.next = time.Now().Add(time.Hour)
	for range 10 {
		ask()
	}
	if measured != 1 {
		t.Errorf("measured %d times, want once", measured)
	}
}

// TestGroupsTakeTurns checks that of an identity whose streams are in many groups, only a few of the groups wait for a
// slot at a time, so that the group of another identity waits behind no more than these.
func TestGroupsTakeTurns(t *testing.T) {
	r := newRig(t, accounts(1000), func(o *Options) { o.Translations = 1 })
	r.server.newcomer = 0
	r.fake.Each.Store(true)
	r.publish(true, "cds a=1")
	for i := range 20 {
		if _, err := r.pod("flood", fmt.Sprintf("p%d.a", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.pod("web", "web.a"); err != nil {
		t.Fatal(err)
	}
	waiting := func(account string) int {
		turns, release := r.server.turns.Hold(
			identity.Holder{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: account}},
		)
		defer release()
		return len(turns)
	}
	eventually(t, "no stream waits", func() bool { return waiting("flood")+waiting("web") == 0 })
	r.fake.Still.Store(true)
	r.server.mu.Lock()
	if n := len(r.server.groups); n != 21 {
		t.Errorf("%d groups", n)
	}
	r.server.mu.Unlock()
	r.server.slots <- struct{}{}
	r.publish(true, "cds a=2")
	eventually(t, "two groups of the one and the group of the other wait", func() bool { return waiting("flood") == 2 && waiting("web") == 1 })
	<-r.server.slots
	eventually(t, "all are sent the next version", func() bool { return sample(t, r.reg, "pilot_xds_pushes", "type", "cds") == 42 })
	eventually(t, "all turns are given back", func() bool { return waiting("flood")+waiting("web") == 0 })
}

// TestHostMemory checks that the memory of the host is read where the kernel says it.
func TestHostMemory(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:       24117248 kB\nMemFree: 1 kB\n": 24117248 << 10,
		"MemFree: 1 kB\n":                     noMemoryLimit,
		"MemTotal: 99999999999999999999 kB\n": noMemoryLimit,
	} {
		if got := hostMemory(fstest.MapFS{"proc/meminfo": {Data: []byte(text)}}); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
	if got := hostMemory(fstest.MapFS{}); got != noMemoryLimit {
		t.Errorf("without a file: %d bytes", got)
	}
}
