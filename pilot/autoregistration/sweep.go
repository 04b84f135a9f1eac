package autoregistration

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// The sweep's times: how often it looks, and how long a proxy whose instance is gone has to come back before its entry
// counts as left behind. An Envoy tries anew at least every 30 s.
const (
	sweepEvery  = 10 * time.Second
	sweepReturn = time.Minute
)

// holding is one time that an instance holds an entry: another begins when a proxy has come back.
type holding struct{ uid, instance, connected string }

// Sweep deletes the entries that were left behind by instances which do not run any more, until ctx ends. One instance
// may do so at a time: what it deletes by refuses when this one is not it any more. An entry is left behind when
//
//   - its proxy disconnected and the grace period has passed twice: the instance that should have deleted it did not;
//   - its instance is gone, or is this one and knows nothing of it, and the proxy did not come back for a minute and
//     the grace period;
//   - it has been connected for longer than any stream lasts.
func (c *Controller) Sweep(ctx context.Context, by Store) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	abandoned := map[holding]time.Time{} // since when its instance is seen to be gone
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		seen := map[holding]time.Time{}
		for _, o := range c.o.Objects() {
			instance := o.Annotations[annotationController]
			if o.Kind != kinds.WorkloadEntry || o.Cluster != "" || o.Annotations[annotationGroup] == "" || instance == "" {
				continue
			}
			if c.o.Sweeps != nil && !c.o.Sweeps(ctx, instance) {
				continue
			}
			at := holding{o.UID, instance, o.Annotations[annotationConnected]}
			if since := abandoned[at]; c.alone(ctx, o) {
				if since.IsZero() {
					since = now
				}
				seen[at] = since
			}
			if c.left(o, seen[at], now) {
				c.remove(ctx, o, by)
			}
		}
		abandoned = seen
	}
}

// alone reports whether the instance of an entry is gone, or has forgotten it.
func (c *Controller) alone(ctx context.Context, o *kinds.Object) bool {
	if o.Annotations[annotationController] == c.o.Instance {
		return !c.holds(o)
	}
	return c.o.Gone != nil && c.o.Gone(ctx, o.Annotations[annotationController])
}

func (c *Controller) holds(o *kinds.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] != nil
}

// left reports whether nobody will come back to an entry.
func (c *Controller) left(o *kinds.Object, alone, now time.Time) bool {
	if c.holds(o) {
		return false
	}
	if gone := readStamp(o.Annotations[annotationDisconnected]); !gone.IsZero() && now.Sub(gone) > 2*c.o.Grace {
		return true
	}
	if came := readStamp(o.Annotations[annotationConnected]); c.o.OrphanAge > 0 && !came.IsZero() && now.Sub(came) > c.o.OrphanAge {
		return true
	}
	return !alone.IsZero() && now.Sub(alone) >= sweepReturn+c.o.Grace
}

func (c *Controller) remove(ctx context.Context, o *kinds.Object, by Store) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	e, err := c.o.Store.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	if err == nil {
		for _, a := range []string{annotationGroup, annotationController, annotationConnected, annotationDisconnected} {
			if e.Annotations[a] != o.Annotations[a] {
				return // somebody has come back to it
			}
		}
		err = by.Delete(ctx, e)
	}
	switch {
	case err == nil:
		c.metrics.deletes.Inc()
		c.o.Logger.Info("workload deleted: it was left behind", "ns", o.Namespace, "name", o.Name, "instance", o.Annotations[annotationController])
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrConflict), errors.Is(err, leader.ErrNotLeader):
	default:
		c.metrics.errors.Inc()
		c.o.Logger.Warn("an entry that was left behind is not deleted", "ns", o.Namespace, "name", o.Name, "err", err)
	}
}
