package xds

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// versionsRetry is the time between two attempts to hold versions.
const versionsRetry = 100 * time.Millisecond

// holdVersions adds the versions that a client of a peer has named to the accounts of the peer's identity, address and
// tenant, until the caller calls releaseVersions. While they hold too many, it waits until others are released, and
// calls waiting each versionsRetry. It fails with a gRPC status if ctx ends, or after half of Limits.MemoryWait: the
// stream itself waits for its first request.
func (a *admission) holdVersions(ctx context.Context, p identity.Peer, v wire.InitialVersions, waiting func()) error {
	h, bounded := p.Holder()
	if !bounded || v.Empty() {
		return nil
	}
	for until := time.Now().Add(a.memoryWait / 2); ; {
		fits, fitsTenant := takeVersions(a.versions, h, v), takeVersions(a.tenants.versions, h.Tenant(), v)
		if fits && fitsTenant {
			return nil
		}
		a.releaseVersions(p, v)
		if time.Now().After(until) {
			who := h.String()
			if fits {
				who = h.Tenant().String()
			}
			a.metrics.refused(refusedVersions)
			return status.Errorf(codes.ResourceExhausted, "the clients of %s have named versions of resources that take too much memory, and "+
				"have not acknowledged yet what they were sent since", who)
		}
		waiting()
		select {
		case <-time.After(versionsRetry):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// releaseVersions takes versions out of the accounts.
func (a *admission) releaseVersions(p identity.Peer, v wire.InitialVersions) {
	if h, bounded := p.Holder(); bounded && !v.Empty() {
		giveVersions(a.versions, h, v)
		giveVersions(a.tenants.versions, h.Tenant(), v)
	}
}

// namedVersions are the bytes of versions that clients of a holder have named.
type namedVersions[K comparable] = quota.Values[K, *wire.SharedVersions]

// takeVersions adds versions to a holder's, and reports whether the total is allowed.
func takeVersions[K comparable](to *namedVersions[K], k K, v wire.InitialVersions) bool {
	shared, own := v.Cost()
	fits := to.Hold(k, v.Shared, shared)
	return to.Add(k, own) && fits
}

// giveVersions reverses takeVersions.
func giveVersions[K comparable](from *namedVersions[K], k K, v wire.InitialVersions) {
	shared, own := v.Cost()
	from.Release(k, v.Shared, shared)
	from.Add(k, -own)
}

// keepVersions records the versions in a request, which the reader has added to the accounts.
func (c *conn) keepVersions(r *wire.Request) {
	if !r.Versions.Empty() {
		c.versions = append(c.versions, r.Versions)
	}
}

// settleVersions takes versions that the session does not keep any more out of the accounts.
func (c *conn) settleVersions() {
	if len(c.versions) > 0 && !c.session.KeepsVersions() {
		c.releaseVersions()
	}
}

// releaseVersions takes the versions that the client has named out of the accounts.
func (c *conn) releaseVersions() {
	for _, v := range c.versions {
		c.server.admission.releaseVersions(c.peer, v)
	}
	c.versions = nil
}
