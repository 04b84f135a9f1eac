package autoregistration

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Times of the sweep. returnTime is how long a proxy whose instance is gone has to reconnect before its entry is left
// behind. An Envoy tries at least every 30 s.
const (
	sweepInterval = 10 * time.Second
	returnTime    = time.Minute
)

// holding is one period in which an instance holds an entry. A proxy that reconnects begins another one.
type holding struct{ uid, instance, connected string }

// Sweep deletes entries that were left behind by instances that no longer run, until ctx ends. Only one instance may
// do so at a time: writer must refuse to delete when this instance is no longer the one. An entry is left behind when
//
//   - its proxy disconnected and the grace period has passed twice, so that the instance that should have deleted it
//     did not;
//   - its instance is gone, or is this one and does not know it, and the proxy did not reconnect for a minute and the
//     grace period;
//   - it has been connected for longer than any stream lasts.
func (c *Controller) Sweep(ctx context.Context, writer Store) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	abandonedSince := map[holding]time.Time{} // when its instance was first found to be gone
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		stillAbandoned := map[holding]time.Time{}
		for _, o := range c.o.World.ObjectsOf(kinds.WorkloadEntry) {
			instance := o.Annotations[annotationController]
			if o.Cluster != "" || o.Annotations[annotationGroup] == "" || instance == "" {
				continue
			}
			if c.o.Replicas != nil && !c.o.Replicas.Sweeps(ctx, instance) {
				continue
			}
			hold := holding{o.UID, instance, o.Annotations[annotationConnected]}
			if since := abandonedSince[hold]; c.abandoned(ctx, o) {
				if since.IsZero() {
					since = now
				}
				stillAbandoned[hold] = since
			}
			if c.leftBehind(o, stillAbandoned[hold], now) {
				c.remove(ctx, o, writer)
			}
		}
		abandonedSince = stillAbandoned
	}
}

// abandoned reports whether the instance of an entry is gone, or does not know the entry.
func (c *Controller) abandoned(ctx context.Context, o *kinds.Object) bool {
	if o.Annotations[annotationController] == c.o.Instance {
		return !c.tracks(o)
	}
	return c.o.Replicas != nil && c.o.Replicas.Gone(ctx, o.Annotations[annotationController])
}

func (c *Controller) tracks(o *kinds.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] != nil
}

// leftBehind reports whether an entry can be deleted because its proxy will not return to it. abandonedSince is zero
// unless its instance is gone.
func (c *Controller) leftBehind(o *kinds.Object, abandonedSince, now time.Time) bool {
	if c.tracks(o) {
		return false
	}
	if gone := parseStamp(o.Annotations[annotationDisconnected]); !gone.IsZero() && now.Sub(gone) > 2*c.o.Grace {
		return true
	}
	connected := parseStamp(o.Annotations[annotationConnected])
	if c.o.OrphanAge > 0 && !connected.IsZero() && now.Sub(connected) > c.o.OrphanAge {
		return true
	}
	return !abandonedSince.IsZero() && now.Sub(abandonedSince) >= returnTime+c.o.Grace
}

func (c *Controller) remove(ctx context.Context, o *kinds.Object, writer Store) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	e, err := c.o.Store.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	if err == nil {
		for _, a := range []string{annotationGroup, annotationController, annotationConnected, annotationDisconnected} {
			if e.Annotations[a] != o.Annotations[a] {
				return // a proxy has reconnected to it
			}
		}
		err = writer.Delete(ctx, e)
	}
	switch {
	case err == nil:
		c.metrics.deletes.Inc()
		instance := o.Annotations[annotationController]
		c.o.Logger.Info("deleted a workload that was left behind", "ns", o.Namespace, "name", o.Name, "instance", instance)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrConflict), errors.Is(err, leader.ErrNotLeader):
	default:
		c.metrics.errors.Inc()
		c.o.Logger.Warn("failed to delete a workload that was left behind", "ns", o.Namespace, "name", o.Name, "err", err)
	}
}
