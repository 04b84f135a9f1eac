package autoregistration

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// guarded is a store that deletes only while it is allowed to.
type guarded struct {
	Store
	may func() bool
}

func (g guarded) Delete(ctx context.Context, e *Entry) error {
	if !g.may() {
		return leader.ErrNotLeader
	}
	return g.Store.Delete(ctx, e)
}

// replicas are Replicas made of functions.
type replicas struct {
	gone   func(instance string) bool
	sweeps func(ctx context.Context, instance string) bool
}

func (r replicas) Gone(_ context.Context, instance string) bool     { return r.gone(instance) }
func (r replicas) Sweeps(ctx context.Context, instance string) bool { return r.sweeps(ctx, instance) }

func TestSweepDeletesWhatIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		gone := map[string]bool{}
		var mu sync.Mutex
		may := true
		a := w.start(t, "a", func(o *Options) {
			o.OrphanAge = time.Hour
			o.Replicas = replicas{
				gone:   func(i string) bool { mu.Lock(); defer mu.Unlock(); return gone[i] },
				sweeps: func(context.Context, string) bool { return true },
			}
		})
		set := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		ctx, stop := context.WithCancel(t.Context())
		swept := make(chan struct{})
		go func() {
			a.Sweep(ctx, guarded{w.Memory, func() bool { mu.Lock(); defer mu.Unlock(); return may }})
			close(swept)
		}()
		left := func(controller string, connected, disconnected time.Time) {
			t.Helper()
			e := &Entry{NamespacedName: vm(), Spec: &networkingv1.WorkloadEntry{},
				Annotations: map[string]string{annotationGroup: "reviews", annotationController: controller}}
			if !connected.IsZero() {
				e.Annotations[annotationConnected] = stamp(connected)
			} else {
				e.Annotations[annotationDisconnected] = stamp(disconnected)
			}
			must.Succeed(t, w.Memory.Create(t.Context(), e))
		}
		none := time.Time{}
		// The proxy disconnected, and its instance did not delete the entry.
		left("b", none, time.Now())
		time.Sleep(19 * time.Second)
		w.want(t, "b disconnected")
		time.Sleep(12 * time.Second)
		w.want(t, "none")
		// Its instance is running.
		left("b", time.Now(), none)
		time.Sleep(59 * time.Minute)
		w.want(t, "b connected")
		time.Sleep(2 * time.Minute)
		w.want(t, "none") // too old
		// Its instance is gone.
		left("b", time.Now(), none)
		set(func() { gone["b"] = true })
		time.Sleep(time.Minute)
		w.want(t, "b connected")
		time.Sleep(31 * time.Second)
		w.want(t, "none")
		// Its instance is gone, but the proxy reconnects to another one.
		left("b", time.Now(), none)
		time.Sleep(30 * time.Second)
		set(func() { gone["b"] = true })
		c := w.start(t, "c")
		c.connect(stream("1"))
		time.Sleep(30 * time.Minute)
		w.want(t, "c connected")
		c.Disconnected(stream("1"))
		time.Sleep(time.Minute)
		w.want(t, "none")
		c.stop()
		// This instance was restarted and does not know the entry.
		left("a", time.Now(), none)
		time.Sleep(2 * time.Minute)
		w.want(t, "none")
		// It is not deleted while another instance is the leader. Entries of other writers are not deleted either.
		set(func() { may = false })
		left("b", time.Now(), none)
		time.Sleep(10 * time.Minute)
		w.want(t, "b connected")
		set(func() { may = true })
		w.take([]kinds.Change{{Key: kinds.Key{Kind: kinds.WorkloadEntry, Name: "hand"},
			Object: &kinds.Object{Key: kinds.Key{Kind: kinds.WorkloadEntry, Name: "hand"}}}})
		// The view is stale: the entry was claimed since.
		stale := w.Object(objectKey(vm()))
		e, _ := w.Memory.Get(t.Context(), vm())
		e.claim("d", time.Now())
		must.Succeed(t, w.Memory.Update(t.Context(), e))
		a.remove(t.Context(), stale, nil)
		w.want(t, "d connected")
		a.metrics("deletes=4")
		stop()
		<-swept
		a.stop()
	})
}

// Entries of instances that this one may not sweep stay, however old they are.
func TestSweepLeavesWhatItMayNotJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		type key struct{}
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), key{}, "the sweep's"))
		a := w.start(t, "a", func(o *Options) {
			o.Replicas = replicas{
				gone: func(string) bool { return false },
				sweeps: func(ctx context.Context, instance string) bool {
					if ctx.Value(key{}) != "the sweep's" {
						t.Error("whose entries it sweeps is asked with another context")
					}
					return instance == "an_outsider"
				},
			}
		})
		swept := make(chan struct{})
		go func() { a.Sweep(ctx, w.Memory); close(swept) }()
		for _, x := range []struct{ instance, want string }{{"a-pod", "a-pod disconnected"}, {"an_outsider", "none"}} {
			e := &Entry{NamespacedName: vm(), Spec: &networkingv1.WorkloadEntry{}, Annotations: map[string]string{
				annotationGroup: "reviews", annotationController: x.instance, annotationDisconnected: stamp(time.Now()),
			}}
			must.Succeed(t, w.Memory.Create(t.Context(), e))
			time.Sleep(time.Hour)
			w.want(t, x.want)
			if x.want != "none" {
				e, _ = w.Memory.Get(t.Context(), vm())
				must.Succeed(t, w.Memory.Delete(t.Context(), e))
			}
		}
		stop()
		<-swept
		a.stop()
	})
}
