package xds

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// arrivalQuiet is how long a client must send nothing until its first requests are over.
const arrivalQuiet = 100 * time.Millisecond

// arrival is the turn of a stream in which its first requests are read. A client that connects again names all that it
// has, in requests that together take 0.3 MB for 1000 services: after an outage these take memory. The turn ends after
// Limits.FirstRequestsTime, or when the client sends nothing for arrivalQuiet.
type arrival struct {
	most  time.Duration
	ends  time.Time
	timer *time.Timer // gives the turn to another stream
}

// arrive waits until the first requests of a stream may be read. It fails with a gRPC status if ctx or the server ends.
func (a *admission) arrive(ctx context.Context, p identity.Peer, closing <-chan struct{}) (*arrival, error) {
	h, _ := p.Holder()
	got, leave := a.arrivals.Enter(h.Tenant())
	var err error
	select {
	case <-got:
		return &arrival{a.firstRequests, time.Now().Add(a.firstRequests), time.AfterFunc(a.firstRequests, leave)}, nil
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-closing:
		err = errShutdown()
	}
	leave()
	return nil, err
}

// within ends the arrival after d, unless within is called again before. It has no effect after the end.
func (a *arrival) within(d time.Duration) {
	if a.timer.Stop() {
		a.timer.Reset(min(d, time.Until(a.ends)))
	}
}

// extend begins the time of the arrival again.
func (a *arrival) extend() {
	a.ends = time.Now().Add(a.most)
	a.within(a.most)
}

// end ends the arrival now.
func (a *arrival) end() { a.within(0) }

// read passes requests to the owner until the stream ends. It holds at most one request.
func (c *conn) read(a *arrival) {
	l := &c.server.o.Limits
	bucket := rate.NewLimiter(rate.Limit(l.RequestsPerSecond), max(1, l.RequestsBurst))
	var names *wire.Recent
	var types map[string]struct{}
	if c.delta {
		types = map[string]struct{}{}
	} else {
		names = &wire.Recent{}
	}
	for quiet := l.FirstRequestsTime; ; quiet = arrivalQuiet {
		r := &wire.Request{Delta: c.delta, Interner: c.server.interner, Limits: l, Recent: names, Types: types}
		a.within(quiet)
		err := c.stream.RecvMsg(r)
		a.within(l.FirstRequestsTime) // the time until the owner takes the request is not the client's
		if err != nil {
			select {
			case c.requests <- incoming{err: err}:
			case <-c.done:
			}
			return
		}
		// Not reading from a client that sends too many requests slows it down.
		cost := min(1+r.Size>>16, bucket.Burst()) // a large request costs as much as many small ones
		if wait := bucket.ReserveN(time.Now(), cost).Delay(); wait > 0 {
			select {
			case <-time.After(wait):
			case <-c.done:
				return
			}
		}
		err = c.server.admission.holdVersions(c.stream.Context(), c.peer, r.Versions, a.extend)
		select {
		case c.requests <- incoming{r, err}:
		case <-c.done:
			if err == nil {
				c.server.admission.releaseVersions(c.peer, r.Versions)
			}
			return
		}
	}
}
