package autoregistration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	networkingv1 "istio.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// admit reports whether a stream may register what it asks for, and returns the group.
func (c *Controller) admit(client xds.Client) (*kinds.Object, error) {
	p := client.Proxy
	if err := checkProxy(p); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	group, account := c.group(p), ""
	if group != nil {
		account = group.Spec.(*networkingv1.WorkloadGroup).GetTemplate().GetServiceAccount()
	}
	if err := c.o.Authorizer.Register(client.Peer, p.Namespace, account); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if group == nil {
		return nil, noGroup(p)
	}
	return group, nil
}

func (c *Controller) group(p *node.Proxy) *kinds.Object {
	return c.o.Object(kinds.Key{Kind: kinds.WorkloadGroup, Namespace: p.Namespace, Name: p.RegisterGroup})
}

func noGroup(p *node.Proxy) error {
	return status.Errorf(codes.FailedPrecondition, "there is no WorkloadGroup %s/%s to register %s with", p.Namespace, p.RegisterGroup, p.ID)
}

// step brings one entry nearer to what it should be, and returns after how long to look at it again; 0: when something
// happens.
func (c *Controller) step(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	c.mu.Lock()
	h := c.entries[key]
	if h == nil {
		c.mu.Unlock()
		return 0, nil
	}
	now := *h // waiting is not used of it
	c.mu.Unlock()
	e, err := c.stored(ctx, key, now)
	if err != nil {
		return 0, err
	}
	if now.streams == 0 {
		return c.retire(ctx, key, now, e)
	}
	again, err := c.uphold(ctx, key, now, e)
	var refusal error
	switch {
	case err == nil:
	case errors.Is(err, ErrRefused):
		refusal = status.Errorf(codes.FailedPrecondition, "the WorkloadEntry %s was not taken: %v", key, err)
	case status.Code(err) != codes.Unknown: // a refusal of our own
		refusal = err
	default:
		return 0, err
	}
	if refusal != nil {
		c.metrics.errors.Inc()
		c.o.Logger.Warn("a workload is not registered", "conn", now.client.ID, "ns", key.Namespace, "name", key.Name, "err", refusal)
	}
	c.notify(key, now, refusal)
	return again, nil
}

// stored returns the entry as it is stored, as far as this instance knows, and nil if there is none. An entry that
// nobody has heard of is not read: creating it shows whether it exists. Nor is one that a proxy which has just come
// claims, for it does so whatever is stored: such an entry has no version.
func (c *Controller) stored(ctx context.Context, key types.NamespacedName, h held) (*Entry, error) {
	if h.entry != nil {
		return h.entry.clone(), nil
	}
	if h.tried {
		return c.read(ctx, key)
	}
	o := c.o.Object(objectKey(key))
	switch {
	case o == nil:
		return nil, nil
	case h.streams > 0 && !h.claimed && o.UID != "" && o.Annotations[annotationGroup] == h.client.Proxy.RegisterGroup:
		e := (&Entry{NamespacedName: key, UID: o.UID, Annotations: o.Annotations}).clone()
		delete(e.Annotations, kinds.AnnotationHealthy)
		return e, nil
	}
	return c.read(ctx, key)
}

func (c *Controller) read(ctx context.Context, key types.NamespacedName) (*Entry, error) {
	e, err := c.o.Store.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err == nil {
		c.remember(key, e)
	}
	return e, err
}

// notify wakes the streams that wait until an entry is written for the newest of them.
func (c *Controller) notify(key types.NamespacedName, done held, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.entries[key]
	if h == nil || !h.since.Equal(done.since) {
		return // there is a newer stream, and a step for it to come
	}
	h.claimed = refusal == nil
	for _, w := range h.waiting {
		w <- refusal
	}
	h.waiting = nil
}

// uphold keeps the entry of a proxy that is connected; e is nil where there is none.
func (c *Controller) uphold(ctx context.Context, key types.NamespacedName, h held, e *Entry) (time.Duration, error) {
	p := h.client.Proxy
	if e == nil {
		group, err := c.admit(h.client) // it may have changed since
		if err != nil {
			return 0, err
		}
		e := newEntry(key, group, p)
		e.claim(c.o.Instance, h.since)
		c.remember(key, nil)
		err = c.o.Store.Create(ctx, e)
		if errors.Is(err, ErrConflict) {
			if e, err = c.read(ctx, key); err == nil && e == nil {
				err = ErrConflict // it has just gone
			}
			if err != nil {
				return 0, err
			}
			return c.uphold(ctx, key, h, e)
		}
		if err != nil {
			return 0, err
		}
		c.remember(key, e)
		c.metrics.success.Inc()
		c.o.Logger.Info("workload registered", "conn", h.client.ID, "ns", key.Namespace, "name", key.Name)
		return soonIf(h.health != nil), nil
	}
	if g := e.Annotations[annotationGroup]; g != p.RegisterGroup {
		return 0, status.Errorf(codes.FailedPrecondition, "the WorkloadEntry %s was not registered for group %s: delete or rename it", key, p.RegisterGroup)
	}
	mine := e.Annotations[annotationController] == c.o.Instance
	current := mine && e.Annotations[annotationConnected] == stamp(h.since) && (!p.ReadinessProbe || e.Annotations[annotationHealth] == "true")
	if !current && (!h.claimed || mine || e.Annotations[annotationDisconnected] != "") {
		e.claim(c.o.Instance, h.since)
		if p.ReadinessProbe {
			e.Annotations[annotationHealth] = "true"
		}
		if err := c.o.Store.Update(ctx, e); err != nil {
			return 0, err
		}
		c.remember(key, e)
		c.metrics.updates.Inc()
		return soonIf(h.health != nil), nil
	}
	if h.health == nil || !mine || h.health.same(e.Health) {
		return 0, nil
	}
	if wait := time.Until(h.wrote.Add(c.healthPace())); wait > 0 {
		return wait, nil
	}
	return 0, c.writeHealth(ctx, key, h.health, e)
}

func soonIf(more bool) time.Duration {
	if more {
		return time.Nanosecond
	}
	return 0
}

func (c *Controller) writeHealth(ctx context.Context, key types.NamespacedName, report *Condition, e *Entry) error {
	written := *report
	written.Changed = report.Probed
	if e.Health != nil && e.Health.Healthy == report.Healthy && !e.Health.Changed.IsZero() {
		written.Changed = e.Health.Changed
	}
	e.Health = &written
	if err := c.o.Store.UpdateStatus(ctx, e); err != nil {
		return fmt.Errorf("write health: %w", err)
	}
	c.remember(key, e)
	c.o.Logger.Info("workload health", "ns", key.Namespace, "name", key.Name, "healthy", written.Healthy, "message", written.Message)
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil {
		h.wrote = time.Now()
	}
	return nil
}

// retire marks the entry of a proxy that has gone, and after the grace period deletes it. Another instance's is none of
// ours.
func (c *Controller) retire(ctx context.Context, key types.NamespacedName, h held, e *Entry) (time.Duration, error) {
	if e == nil || e.Annotations[annotationGroup] != h.client.Proxy.RegisterGroup || e.Annotations[annotationController] != c.o.Instance {
		c.forget(key)
		return 0, nil
	}
	gone := readStamp(e.Annotations[annotationDisconnected])
	if gone.IsZero() {
		e.release(h.since)
		if err := c.o.Store.Update(ctx, e); err != nil {
			return 0, err
		}
		c.remember(key, e)
		c.metrics.unregister.Inc()
		return max(time.Until(h.since.Add(c.o.Grace)), time.Nanosecond), nil
	}
	if wait := time.Until(gone.Add(c.o.Grace)); wait > 0 {
		return wait, nil
	}
	if err := c.o.Store.Delete(ctx, e); err != nil && !errors.Is(err, ErrNotFound) {
		return 0, err
	}
	c.metrics.deletes.Inc()
	c.o.Logger.Info("workload deleted: its proxy has not come back", "ns", key.Namespace, "name", key.Name)
	c.forget(key)
	return 0, nil
}

// forget drops what is known of an entry, unless its proxy is connected again.
func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil && h.streams == 0 {
		delete(c.entries, key)
		if h.holder != (identity.Holder{}) {
			c.each.Add(h.holder, -1)
		}
		c.tenants.Add(h.holder.Tenant(), -1)
	}
}
