package xds

import (
	"context"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// admission decides which streams are served, and bounds what one identity, or one address of peers that proved none,
// may hold of what all share, and what one tenant may. Safe for concurrent use.
type admission struct {
	slots   *quota.Pool[identity.Tenant] // of streams; nil if there is no bound
	short   func() bool                  // reports whether memory is short
	metrics *metrics

	identities, strangers struct {
		streams *quota.Counter[identity.Holder]
		lists   *quota.Values[identity.Holder, subscribed]
	}
	cohorts     *quota.Table[identity.Holder, *cohorts]
	cohortBytes int // most that is kept for the cohorts of one identity or address

	tenants struct {
		lists       *quota.Values[identity.Tenant, subscribed]
		cohorts     *quota.Table[identity.Tenant, *cohorts]
		cohortBytes int
	}
}

// tenantShares is how many times what one identity may hold of memory a tenant may hold.
const tenantShares = 3

// subscribed is the list of names that streams subscribe to of a type.
type subscribed struct {
	kind  *envoy.Type
	names *envoy.Names
}

// noMemoryLimit stands for the memory limit where there is none.
const noMemoryLimit = 2 << 30

// hostMemory returns the bytes of memory of this host, or noMemoryLimit if they are not known. root is the root of the
// file system.
func hostMemory(root fs.FS) int {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return noMemoryLimit
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if n, err := strconv.Atoi(f[1]); err == nil && n > 0 && n < math.MaxInt>>10 {
				return n << 10
			}
		}
	}
	return noMemoryLimit
}

// newAdmission returns an admission that serves a number of streams at a time, any number if it is 0.
func newAdmission(streams int, l *limits.Limits, m *metrics) *admission {
	a := &admission{short: memoryShort, metrics: m}
	each := math.MaxInt
	if streams > 0 {
		a.slots, each = quota.NewPool[identity.Tenant](streams), quota.Share(streams)
	}
	memory := debug.SetMemoryLimit(-1)
	a.cohortBytes = quota.Share(int(memory))
	if memory == math.MaxInt64 {
		memory = noMemoryLimit
		a.cohortBytes = quota.Share(hostMemory(os.DirFS("/")))
	}
	a.identities.streams = quota.NewCounter[identity.Holder](each)
	a.identities.lists = quota.NewValues[identity.Holder, subscribed](quota.Share(int(memory)))
	a.strangers.streams = quota.NewCounter[identity.Holder](l.StreamsPerSource)
	a.strangers.lists = quota.NewValues[identity.Holder, subscribed](min(l.NameBytesPerSource, quota.Share(int(memory))))
	a.cohorts = quota.NewTable[identity.Holder](func() *cohorts { return newCohorts(fewCohorts) })
	a.tenants.lists = quota.NewValues[identity.Tenant, subscribed](tenantShares * quota.Share(int(memory)))
	a.tenants.cohorts = quota.NewTable[identity.Tenant](func() *cohorts { return newCohorts(fewOfTenant) })
	a.tenants.cohortBytes = tenantShares * a.cohortBytes
	return a
}

// enter waits until the stream of a peer may be served; leave ends that. The error is a gRPC status: too many streams
// of the peer's identity or address, too little memory, or the end of ctx or of the server.
func (a *admission) enter(ctx context.Context, p identity.Peer, closing <-chan struct{}) (leave func(), err error) {
	if a.short() {
		a.metrics.refused(refusedMemory)
		return nil, status.Error(codes.ResourceExhausted, "the server has too little memory for another stream")
	}
	release := func() {}
	h, bounded := p.Holder()
	if bounded {
		streams := a.strangers.streams
		if h.Proved() {
			streams = a.identities.streams
		}
		if !streams.Take(h) {
			a.metrics.refused(refusedStreams)
			if h.Proved() {
				return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams, a tenth of what this server serves: "+
					"run more replicas, or raise --maxStreams", h, streams.Most())
			}
			return nil, status.Errorf(codes.ResourceExhausted, "more than %d streams from %s that prove no identity", streams.Most(), h)
		}
		release = func() { streams.Add(h, -1) }
	}
	if a.slots == nil {
		return release, nil
	}
	got, free := a.slots.Enter(h.Tenant())
	leave = func() { free(); release() }
	select {
	case <-got:
		return leave, nil
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-closing:
		err = errShutdown()
	}
	leave()
	return nil, err
}

// hold counts the names that a stream of a peer subscribes to of a type, and counts off the names before. A nil list
// is empty. The error is a gRPC status: the peer's identity or address has too many, or its tenant.
func (a *admission) hold(p identity.Peer, kind *envoy.Type, before, now *envoy.Names) error {
	h, bounded := p.Holder()
	if !bounded || before == now {
		return nil
	}
	lists := a.strangers.lists
	if h.Proved() {
		lists = a.identities.lists
	}
	if before != nil {
		of, size := subscribed{kind, before}, session.CostOfNames(kind, before)
		lists.Release(h, of, size)
		a.tenants.lists.Release(h.Tenant(), of, size)
	}
	if now == nil {
		return nil
	}
	of, size := subscribed{kind, now}, session.CostOfNames(kind, now)
	fits, fitsTenant := lists.Hold(h, of, size), a.tenants.lists.Hold(h.Tenant(), of, size)
	who, most := h.String(), lists.Most()
	switch {
	case fits && fitsTenant:
		return nil
	case fits:
		who, most = h.Tenant().String(), a.tenants.lists.Most()
	}
	a.metrics.refused(refusedNames)
	return status.Errorf(codes.ResourceExhausted, "the streams of %s subscribe to different resource names that take more than %d bytes", who, most)
}

// memoryShort reports whether what is alive takes 85 % of the memory limit, after the last collection. Without a limit
// it never does.
func memoryShort() bool {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return false
	}
	live := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(live)
	return live[0].Value.Uint64() > uint64(limit)/100*85
}
