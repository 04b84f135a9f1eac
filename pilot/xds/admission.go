package xds

import (
	"context"
	"math"
	"net/netip"
	"runtime/debug"
	runtimemetrics "runtime/metrics"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
)

// admission decides which streams are served, and bounds what peers that proved no identity may hold. Safe for
// concurrent use.
type admission struct {
	slots          chan struct{} // one taken by each stream; nil: no bound
	limits         *limits.Limits
	short          func() bool    // reports whether memory is short
	streams, names *quota.Counter // of unproved streams
}

func newAdmission(streams int, l *limits.Limits) *admission {
	a := &admission{limits: l, short: memoryShort, streams: quota.NewCounter(l.StreamsPerSource), names: quota.NewCounter(l.NamesPerSource)}
	if streams > 0 {
		a.slots = make(chan struct{}, streams)
	}
	return a
}

// stranger returns the address of a peer that proved no identity. false: the peer proved one, or is on this host.
func stranger(p identity.Peer) (netip.Addr, bool) {
	return p.Address.Addr().Unmap(), !p.Proved() && !p.OnHost() && p.Address.IsValid()
}

// enter waits until the stream of a peer may be served; leave ends that. The error is a gRPC status: too many streams
// of one unproved address, too little memory, or the end of ctx or of the server.
func (a *admission) enter(ctx context.Context, p identity.Peer, closing <-chan struct{}) (leave func(), err error) {
	if a.short() {
		return nil, status.Error(codes.ResourceExhausted, "the server has too little memory for another stream")
	}
	address, unproved := stranger(p)
	if unproved && !a.streams.Take(address) {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d streams from %s that prove no identity", a.limits.StreamsPerSource, address)
	}
	release := func() {
		if unproved {
			a.streams.Add(address, -1)
		}
	}
	if a.slots == nil {
		return release, nil
	}
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots; release() }, nil
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-closing:
		err = errShutdown()
	}
	release()
	return nil, err
}

// name adds to the number of names that the streams of a peer subscribe to. false: they are too many for a peer that
// proved no identity.
func (a *admission) name(p identity.Peer, more int) bool {
	address, unproved := stranger(p)
	return !unproved || a.names.Add(address, more)
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
