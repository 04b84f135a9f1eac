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

// admit returns the group of a stream's proxy, or an error with a gRPC status if the stream may not register it.
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
	return c.o.World.Object(kinds.Key{Kind: kinds.WorkloadGroup, Namespace: p.Namespace, Name: p.RegisterGroup})
}

func noGroup(p *node.Proxy) error {
	return status.Errorf(codes.FailedPrecondition,
		"there is no WorkloadGroup %s/%s for proxy %s: create it, or correct AUTO_REGISTER_GROUP in the proxy's metadata", p.Namespace,
		p.RegisterGroup, p.ID)
}

// step brings the stored entry closer to the wanted state. It returns the time until the next step, or 0 if only an
// event requires one.
func (c *Controller) step(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	c.mu.Lock()
	h := c.entries[key]
	if h == nil {
		c.mu.Unlock()
		return 0, nil
	}
	current := *h // its waiting list is not used
	c.mu.Unlock()
	e, err := c.stored(ctx, key, current)
	if err != nil {
		return 0, err
	}
	if current.streams == 0 {
		return c.retire(ctx, key, current, e)
	}
	requeueAfter, err := c.maintain(ctx, key, current, e)
	var refusal error
	switch {
	case err == nil:
	case errors.Is(err, ErrRefused):
		refusal = status.Errorf(codes.FailedPrecondition, "the API server refused the WorkloadEntry %s: %v", key, err)
	case status.Code(err) != codes.Unknown: // made by this package
		refusal = err
	default:
		return 0, err
	}
	if refusal != nil {
		c.metrics.errors.Inc()
		c.o.Logger.Warn("failed to register a workload", "conn", current.client.ID, "ns", key.Namespace, "name", key.Name, "err", refusal)
	}
	c.notify(key, current, refusal)
	return requeueAfter, nil
}

// stored returns the stored entry, as far as this instance knows, or nil if there is none. An unknown entry is not
// read: Create fails if it exists. Nor is an entry read that a newly connected proxy claims, because the claim does
// not depend on what is stored. That entry has no version.
func (c *Controller) stored(ctx context.Context, key types.NamespacedName, h registration) (*Entry, error) {
	if h.cached != nil {
		return h.cached.clone(), nil
	}
	if h.mustRead {
		return c.read(ctx, key)
	}
	o := c.o.World.Object(objectKey(key))
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
		c.cache(key, e)
	}
	return e, err
}

// notify sends the result of writing an entry to the waiting streams, unless a newer stream has connected since.
func (c *Controller) notify(key types.NamespacedName, done registration, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.entries[key]
	if h == nil || !h.since.Equal(done.since) {
		return // the newer stream has a step of its own
	}
	h.claimed = refusal == nil
	for _, w := range h.waiting {
		w <- refusal
	}
	h.waiting = nil
}

// maintain creates or claims the entry of a connected proxy and writes its health. e is nil if there is no entry.
func (c *Controller) maintain(ctx context.Context, key types.NamespacedName, h registration, e *Entry) (time.Duration, error) {
	p := h.client.Proxy
	if e == nil {
		group, err := c.admit(h.client) // the group may have changed since
		if err != nil {
			return 0, err
		}
		e := newEntry(key, group, p)
		e.claim(c.o.Instance, h.since)
		c.cache(key, nil)
		err = c.o.Store.Create(ctx, e)
		if errors.Is(err, ErrConflict) {
			if e, err = c.read(ctx, key); err == nil && e == nil {
				err = ErrConflict // it was deleted in between
			}
			if err != nil {
				return 0, err
			}
			return c.maintain(ctx, key, h, e)
		}
		if err != nil {
			return 0, err
		}
		c.cache(key, e)
		c.metrics.success.Inc()
		c.o.Logger.Info("registered a workload", "conn", h.client.ID, "ns", key.Namespace, "name", key.Name)
		return soonIf(h.health != nil), nil
	}
	if g := e.Annotations[annotationGroup]; g != p.RegisterGroup {
		return 0, status.Errorf(codes.FailedPrecondition,
			"the WorkloadEntry %s does not belong to WorkloadGroup %s: delete or rename it", key, p.RegisterGroup)
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
		c.cache(key, e)
		c.metrics.updates.Inc()
		return soonIf(h.health != nil), nil
	}
	if h.health == nil || !mine || h.health.equal(e.Health) {
		return 0, nil
	}
	if wait := time.Until(h.healthWritten.Add(c.healthInterval())); wait > 0 {
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
		return fmt.Errorf("failed to write health: %w", err)
	}
	c.cache(key, e)
	c.o.Logger.Info("wrote workload health", "ns", key.Namespace, "name", key.Name, "healthy", written.Healthy, "message", written.Message)
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil {
		h.healthWritten = time.Now()
	}
	return nil
}

// retire marks the entry of a disconnected proxy and deletes it after the grace period. It leaves entries of other
// instances alone.
func (c *Controller) retire(ctx context.Context, key types.NamespacedName, h registration, e *Entry) (time.Duration, error) {
	if e == nil || e.Annotations[annotationGroup] != h.client.Proxy.RegisterGroup || e.Annotations[annotationController] != c.o.Instance {
		c.forget(key)
		return 0, nil
	}
	gone := parseStamp(e.Annotations[annotationDisconnected])
	if gone.IsZero() {
		e.release(h.since)
		if err := c.o.Store.Update(ctx, e); err != nil {
			return 0, err
		}
		c.cache(key, e)
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
	c.o.Logger.Info("deleted a workload whose proxy did not reconnect", "ns", key.Namespace, "name", key.Name)
	c.forget(key)
	return 0, nil
}

// forget drops the state of an entry, unless its proxy is connected again.
func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil && h.streams == 0 {
		delete(c.entries, key)
		if h.holder != (identity.Holder{}) {
			c.perHolder.Add(h.holder, -1)
		}
		c.perTenant.Add(h.holder.Tenant(), -1)
	}
}
