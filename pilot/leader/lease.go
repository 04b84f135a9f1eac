package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// ErrNotLeader is the error of a guarded write that was not sent.
var ErrNotLeader = errors.New("not the leader")

// Options of a Lease. The times may be left zero.
type Options struct {
	Client    *rest.Config
	Namespace string
	Name      string // of the Lease, without the revision
	Revision  string // empty and "default" are the same and add nothing to the name
	Identity  string // the pod's name; no two processes that run at a time may share one
	Logger    *slog.Logger

	Duration time.Duration // without a renewal, others wait as long before they take over; whole seconds
	Deadline time.Duration // without a renewal, the holder leads no longer than that; shorter than Duration
	Retry    time.Duration // between two tries to acquire or renew
}

// Lease is the right to write. A nil Lease is for the only replica: it is always valid.
type Lease struct {
	o       Options
	name    string
	leases  dynamic.ResourceInterface
	refused refusal

	mu      sync.Mutex
	renewed time.Time // when the request was begun that renewed it last; zero: it is not held
}

// New makes a Lease that is not held.
func New(o Options) (*Lease, error) {
	if o.Identity == "" || o.Namespace == "" || o.Name == "" {
		return nil, errors.New("a lease needs a namespace, a name and the identity of this instance")
	}
	o.Duration, o.Deadline, o.Retry = cmp.Or(o.Duration, 12*time.Second), cmp.Or(o.Deadline, 8*time.Second), cmp.Or(o.Retry, 1500*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := &Lease{o: o, name: o.Name, refused: refusal{effect: "this server cannot be elected", namespace: o.Namespace}}
	if o.Revision != "" && o.Revision != "default" {
		l.name += "-" + o.Revision
	}
	c := rest.CopyConfig(o.Client)
	c.Timeout = o.Deadline / 2                 // a request that hangs leaves time for another
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil // renewals wait for nothing else
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("client of lease %s: %w", l.name, err)
	}
	l.leases = client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(o.Namespace)
	return l, nil
}

// Valid reports whether this instance may write at this very moment.
func (l *Lease) Valid() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() {
		return false
	}
	now := time.Now()
	// The monotonic clock stands still while the machine sleeps, the other one can be set.
	age := max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
	return age < l.o.Deadline
}

// Findings returns what the API server forbids to this instance.
func (l *Lease) Findings() []diag.Diagnostic {
	if l == nil {
		return nil
	}
	return l.refused.Findings()
}

// Guard lets a client's requests that change something through only while the lease is valid. It fits rest.Config.Wrap.
func (l *Lease) Guard(next http.RoundTripper) http.RoundTripper { return &guard{l, next} }

type guard struct {
	lease *Lease
	next  http.RoundTripper
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !g.lease.Valid() {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper has to, and its error concerns nobody
		}
		return nil, ErrNotLeader
	}
	return g.next.RoundTrip(r)
}

// Run calls fn each time that this instance becomes the leader, until ctx ends. The context that fn gets ends the
// moment leadership is lost; fn should return soon after, for until then this instance stands for no election. When fn
// returns by itself, or panics, leadership is given up. Run returns after fn has, and after the lease was released.
func (l *Lease) Run(ctx context.Context, fn func(context.Context)) {
	if l == nil {
		fn(ctx)
		return
	}
	var seen sighting
	for ctx.Err() == nil {
		if lease, renewed := l.acquire(ctx, &seen); lease != nil {
			l.lead(ctx, lease, renewed, fn)
		}
		l.pause(ctx)
	}
}

// pause waits until the next try, not all replicas at once.
func (l *Lease) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(l.o.Retry + rand.N(l.o.Retry/5)):
	}
}

// sighting is a version of another's lease and when it was first seen, by this instance's clock: the times in it are by
// the other's.
type sighting struct {
	version string
	at      time.Time
}

// acquire takes the lease if it has no holder, or if its holder has not renewed it for its duration. It returns nil if
// it does not take it.
func (l *Lease) acquire(ctx context.Context, seen *sighting) (*coordinationv1.Lease, time.Time) {
	began := time.Now()
	lease, err := l.get(ctx)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{}
		lease.Namespace, lease.Name = l.o.Namespace, l.name
	} else if err != nil {
		return nil, began
	}
	spec := &lease.Spec
	holder := deref(spec.HolderIdentity)
	if holder != "" && holder != l.o.Identity {
		if seen.version != lease.ResourceVersion {
			*seen = sighting{lease.ResourceVersion, time.Now()}
		}
		if time.Since(seen.at) < time.Duration(deref(spec.LeaseDurationSeconds))*time.Second {
			l.refused.note("", "", nil) // there is nothing to write now
			return nil, began
		}
	}
	now := metav1.NewMicroTime(time.Now())
	if holder != l.o.Identity {
		spec.AcquireTime, spec.LeaseTransitions = &now, new(deref(spec.LeaseTransitions)+1)
	}
	spec.HolderIdentity = &l.o.Identity
	if lease, err = l.write(ctx, lease, l.o.Duration); err != nil {
		return nil, began
	}
	return lease, began
}

// failed notes and logs a request that failed. A new refusal is a warning.
func (l *Lease) failed(verb string, err error) {
	level := slog.LevelDebug
	if l.refused.note(verb, l.name, err) {
		level = slog.LevelWarn
	}
	l.o.Logger.Log(context.Background(), level, "failed to hold lease", "ns", l.o.Namespace, "name", l.name, "verb", verb, "err", err)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// lead calls fn and renews the lease, until ctx ends, fn has returned or the lease is lost. renewed is when the request
// was begun that took it: the others count from its end, or later.
func (l *Lease) lead(ctx context.Context, lease *coordinationv1.Lease, renewed time.Time, fn func(context.Context)) {
	ctx, lose := context.WithCancel(ctx)
	defer lose()
	lost := func() {
		l.held(time.Time{})
		lose()
	}
	watchdog := time.AfterFunc(l.o.Deadline, lost)
	defer watchdog.Stop()
	hold := func(since time.Time) {
		l.held(since)
		watchdog.Reset(time.Until(since.Add(l.o.Deadline)))
	}
	hold(renewed)
	l.o.Logger.Info("leading", "name", l.name)
	ended := make(chan struct{})
	safe.Go(l.o.Logger, "leader", func() {
		defer close(ended)
		defer lose()
		fn(ctx)
	})
	for {
		l.pause(ctx)
		if ctx.Err() != nil || !l.Valid() { // a process that was stopped sees the clock before anybody cancels anything
			break
		}
		began := time.Now()
		next, err := l.write(ctx, lease, l.o.Duration)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			if next, err = l.get(ctx); err == nil && deref(next.Spec.HolderIdentity) != l.o.Identity || apierrors.IsNotFound(err) {
				break // another has taken over
			}
			if err == nil {
				lease = next // somebody has edited it
			}
			continue
		}
		if err == nil {
			lease = next
			hold(began)
		}
	}
	valid := l.Valid()
	lost()
	<-ended
	l.o.Logger.Info("no longer leading", "name", l.name)
	if valid { // else it may be another's by now
		l.release(context.WithoutCancel(ctx), lease)
	}
}

// release lets another replica take over at once. A version that another replica has written since stays, because it is
// newer than lease.
func (l *Lease) release(ctx context.Context, lease *coordinationv1.Lease) {
	lease.Spec.HolderIdentity = new("")
	_, _ = l.write(ctx, lease, time.Second) // an error is noted: others take over after the duration
}

func (l *Lease) held(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = since
}

func (l *Lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	u, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			l.failed("get", err)
		}
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	return lease, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, lease)
}

// write creates the lease, or puts it in the place of the version that it was read as.
func (l *Lease) write(ctx context.Context, lease *coordinationv1.Lease, lasts time.Duration) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
	now := metav1.NewMicroTime(time.Now())
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &now, new(int32(lasts/time.Second))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lease)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	verb := "update"
	if lease.ResourceVersion == "" {
		verb = "create"
		u, err = l.leases.Create(ctx, u, metav1.CreateOptions{})
	} else {
		u, err = l.leases.Update(ctx, u, metav1.UpdateOptions{})
	}
	if err != nil {
		l.failed(verb, err)
		return nil, err
	}
	l.refused.note(verb, l.name, nil)
	lease = &coordinationv1.Lease{}
	return lease, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, lease)
}
