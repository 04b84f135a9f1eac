package xds

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// admission decides which streams are served. It bounds the shared resources of one identity, of one address of peers
// without a proved identity, and of one tenant. It is safe for concurrent use.
type admission struct {
	memory   *memory
	arrivals *quota.Pool[identity.Tenant]
	metrics  *metrics
	logger   *slog.Logger
	full     rate.Sometimes // limits the warning of streams that wait

	firstRequests, memoryWait time.Duration // see limits.Limits

	identities, strangers struct {
		streams *quota.Counter[identity.Holder]
		lists   *quota.Values[identity.Holder, subscribed]
	}
	versions    *namedVersions[identity.Holder]
	cohorts     *quota.Table[identity.Holder, *cohorts]
	cohortBytes int // most bytes that are kept for the cohorts of one identity or address

	tenants struct {
		lists       *quota.Values[identity.Tenant, subscribed]
		versions    *namedVersions[identity.Tenant]
		cohorts     *quota.Table[identity.Tenant, *cohorts]
		cohortBytes int
	}
}

// tenantShares is the memory that a tenant may hold, in shares of an identity.
const tenantShares = 3

// subscribed is a list of names that streams subscribe to, and its type.
type subscribed struct {
	kind  *envoy.Type
	names *envoy.Names
}

// noMemoryLimit is the assumed memory in bytes if there is no memory limit.
const noMemoryLimit = 2 << 30

// hostMemory returns the memory of this host in bytes, or noMemoryLimit if it is not known. root is the root of the
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

// newAdmission returns an admission for a number of concurrent streams. 0 means no bound. It logs a warning if
// streams wait until others end.
func newAdmission(streams int, l *limits.Limits, m *metrics, logger *slog.Logger) *admission {
	each := quota.Share(streams)
	if streams == 0 {
		streams, each = math.MaxInt, math.MaxInt
	}
	a := &admission{
		memory: newMemory(streams, l.FirstBytes), metrics: m, logger: logger, full: rate.Sometimes{Interval: time.Minute},
		firstRequests: l.FirstRequestsTime, memoryWait: l.MemoryWait,
	}
	a.arrivals = quota.NewPool[identity.Tenant](l.FirstRequests * runtime.GOMAXPROCS(0))
	m.waiting(map[string]func() int{"stream": a.memory.slots.Waiting, "arrival": a.arrivals.Waiting, "memory": a.memory.places.Waiting})
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
	a.versions = quota.NewValues[identity.Holder, *wire.SharedVersions](quota.Share(int(memory)))
	a.cohorts = quota.NewTable[identity.Holder](func() *cohorts { return newCohorts(fewCohorts) })
	a.tenants.lists = quota.NewValues[identity.Tenant, subscribed](tenantShares * quota.Share(int(memory)))
	a.tenants.versions = quota.NewValues[identity.Tenant, *wire.SharedVersions](tenantShares * quota.Share(int(memory)))
	a.tenants.cohorts = quota.NewTable[identity.Tenant](func() *cohorts { return newCohorts(fewOfTenant) })
	a.tenants.cohortBytes = tenantShares * a.cohortBytes
	return a
}

// enter waits until the stream of a peer may be served. The caller must call leave at its end. It fails with a gRPC
// status if the peer's identity or address has too many streams, if memory stays short, or if ctx or the server ends.
func (a *admission) enter(ctx context.Context, p identity.Peer, closing <-chan struct{}) (leave func(), err error) {
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
	got, free := a.memory.slot(h.Tenant())
	leave = func() { free(); release() }
	select {
	case <-got: // usual, and without a timer
		return leave, nil
	default:
	}
	waited := time.NewTicker(a.memoryWait)
	defer waited.Stop()
	for {
		select {
		case <-got:
			return leave, nil
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		case <-closing:
			err = errShutdown()
		case <-waited.C:
			if !a.memory.short() { // too many streams are served: this one goes on waiting
				a.full.Do(func() {
					a.logger.Warn("streams wait: run more replicas, or raise --maxStreams", "served", a.memory.streams,
						"waiting", a.memory.slots.Waiting())
				})
				continue
			}
			select {
			case <-got:
				return leave, nil
			default:
			}
			a.metrics.refused(refusedMemory)
			err = status.Error(codes.ResourceExhausted, "the server has too little memory for another stream")
		}
		leave()
		return nil, err
	}
}

// hold replaces the names of a type that a stream of a peer subscribes to in the accounts. A nil list is empty. It
// fails with a gRPC status if the peer's identity, address or tenant holds too many.
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
	return status.Errorf(
		codes.ResourceExhausted, "the streams of %s subscribe to different resource names that take more than %d bytes", who, most,
	)
}
