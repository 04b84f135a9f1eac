package xds

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/cohort"
)

// cohorts are the cohorts of the streams of one identity, or of one address without an identity. Labels and settings,
// which a proxy chooses, determine its cohort, and each cohort costs memory of its own. So the memory is measured if
// there are more cohorts than most identities have. A nil cohorts has no bound. It is safe for concurrent use.
type cohorts struct {
	few int // number of cohorts up to which nothing is measured

	mu        sync.Mutex
	streams   map[cohort.Key]int // number of streams, by cohort.Key.Kept
	order     []cohort.Key       // keys of streams, oldest first
	bytes     int                // result of the last measurement
	next      time.Time          // time of the next measurement
	measuring bool
}

const (
	// fewCohorts is the number of cohorts of an identity up to which nothing is measured. They cost at most as much as
	// a proxy each.
	fewCohorts = 8
	// fewOfTenant is the same for all identities of a tenant together.
	fewOfTenant = 10 * fewCohorts
	// minMeasure is the least time between two measurements. A measurement also takes at most 1/measureRate of that
	// time.
	minMeasure  = 100 * time.Millisecond
	measureRate = 20
)

func newCohorts(few int) *cohorts { return &cohorts{few: few, streams: map[cohort.Key]int{}} }

// move records that a stream changes its cohort. A zero key means no cohort.
func (c *cohorts) move(from, to cohort.Key) {
	if from, to = from.Cached(), to.Cached(); c == nil || from == to {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if to != (cohort.Key{}) {
		if c.streams[to]++; c.streams[to] == 1 {
			c.order = append(c.order, to)
		}
	}
	if from == (cohort.Key{}) {
		return
	}
	if c.streams[from]--; c.streams[from] == 0 {
		delete(c.streams, from)
		c.order = slices.DeleteFunc(c.order, func(k cohort.Key) bool { return k == from })
	}
}

// kept returns the bytes that are kept for the cohorts besides the first one. The result may be a recent measurement.
func (c *cohorts) kept(measure func([]cohort.Key) int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	switch {
	case len(c.order) <= c.few:
		return 0
	case c.measuring || began.Before(c.next):
		return c.bytes
	}
	c.measuring = true
	list := slices.Clone(c.order)
	c.mu.Unlock()
	n := 0
	defer func() {
		c.mu.Lock()
		c.bytes, c.measuring, c.next = n, false, time.Now().Add(max(minMeasure, measureRate*time.Since(began)))
	}()
	n = measure(list)
	return n
}

// admitCohort returns a gRPC status if a stream requests more while too much is kept for the cohorts of its identity or
// address, or of its tenant. A stream that requests nothing new is sent changes in any case.
func (a *admission) admitCohort(c *conn) error {
	if c.cohorts == nil || !c.session.Grows() {
		return nil
	}
	h, _ := c.peer.Holder()
	who, share, most := h.String(), "a tenth", a.cohortBytes
	if c.cohorts.kept(c.server.o.Translator.Bytes) <= most {
		if who, share, most = h.Tenant().String(), "three tenths", a.tenants.cohortBytes; c.tenant.kept(c.server.o.Translator.Bytes) <= most {
			return nil
		}
	}
	a.metrics.refused(refusedCohorts)
	return status.Errorf(codes.ResourceExhausted, "the proxies of %s have different labels or settings, "+
		"and their configuration takes more than %d bytes, "+
		"%s of the memory: use fewer kinds of proxies for one account, run more replicas, or raise the memory limit", who, most, share)
}
