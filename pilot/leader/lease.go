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

// ErrNotLeader is the error of a guarded request that was not sent because the lease is not valid.
var ErrNotLeader = errors.New("not the leader")

// Options configure a Lease. The times have defaults.
type Options struct {
	Client    *rest.Config
	Namespace string
	// Name is the name of the Lease, without the revision.
	Name string
	// Revision is appended to the name, unless it is empty or "default".
	Revision string
	// Identity identifies this process, usually by its pod's name. It must be unique among running processes.
	Identity string
	Logger   *slog.Logger

	// Duration is how long a Lease without a renewal excludes other holders, in whole seconds. The default is 12 s.
	Duration time.Duration
	// Deadline is how long its holder regards it as valid without a renewal. It must be shorter than Duration. The
	// default is 8 s.
	Deadline time.Duration
	// Retry is the time between two attempts to acquire or renew it. The default is 1.5 s.
	Retry time.Duration
}

// Lease is the right to write. A nil *Lease is always valid, for a control plane of one replica.
type Lease struct {
	o       Options
	name    string
	leases  dynamic.ResourceInterface
	refused refusal

	mu sync.Mutex
	// renewed is when the request that last renewed the Lease was begun. It is zero while the Lease is not held.
	renewed time.Time
}

// New returns a Lease that is not held. It makes no requests.
func New(o Options) (*Lease, error) {
	if o.Identity == "" || o.Namespace == "" || o.Name == "" {
		return nil, errors.New("a lease needs a namespace, a name and the identity of this instance")
	}
	o.Duration, o.Deadline = cmp.Or(o.Duration, 12*time.Second), cmp.Or(o.Deadline, 8*time.Second)
	o.Retry = cmp.Or(o.Retry, 1500*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := &Lease{o: o, name: o.Name, refused: refusal{effect: "this server cannot be elected", namespace: o.Namespace}}
	if o.Revision != "" && o.Revision != "default" {
		l.name += "-" + o.Revision
	}
	c := rest.CopyConfig(o.Client)
	c.Timeout = o.Deadline / 2                 // after a request that hangs there is time for another
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil // renewals are not rate limited
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("client of lease %s: %w", l.name, err)
	}
	l.leases = client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(o.Namespace)
	return l, nil
}

// Valid reports whether this instance may write at this moment.
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
	// The monotonic clock stops while the machine sleeps, and the wall clock can be set. The larger age is safe.
	age := max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
	return age < l.o.Deadline
}

// Findings returns a finding if the API server has refused the last request for the Lease.
func (l *Lease) Findings() []diag.Diagnostic {
	if l == nil {
		return nil
	}
	return l.refused.Findings()
}

// Guard wraps a transport so that requests other than GET and HEAD fail with ErrNotLeader unless the lease is valid.
// It has the type of rest.Config.Wrap.
func (l *Lease) Guard(next http.RoundTripper) http.RoundTripper { return &guard{l, next} }

type guard struct {
	lease *Lease
	next  http.RoundTripper
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !g.lease.Valid() {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must close the body, and the request was not sent
		}
		return nil, ErrNotLeader
	}
	return g.next.RoundTrip(r)
}

// Run calls fn whenever this instance becomes the leader, until ctx ends. fn's context ends when leadership is lost.
// fn should then return soon, because this instance is no candidate until it has. If fn returns by itself or panics,
// the lease is released and may be acquired again. Run returns after fn has returned and the lease was released.
func (l *Lease) Run(ctx context.Context, fn func(context.Context)) {
	if l == nil {
		fn(ctx)
		return
	}
	var observed observation
	for ctx.Err() == nil {
		if lease, renewed := l.acquire(ctx, &observed); lease != nil {
			l.lead(ctx, lease, renewed, fn)
		}
		l.pause(ctx)
	}
}

// pause waits until the next attempt, with jitter so that replicas do not try at the same time.
func (l *Lease) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(l.o.Retry + rand.N(l.o.Retry/5)):
	}
}

// observation is a version of a Lease and when this instance first saw it. Expiry is measured from there, because the
// times in the Lease are by its holder's clock.
type observation struct {
	version string
	at      time.Time
}

// acquire takes the lease if it has no holder, or if its holder has not renewed it for its duration. It returns nil
// if the lease was not taken. The time is when the attempt began.
func (l *Lease) acquire(ctx context.Context, observed *observation) (*coordinationv1.Lease, time.Time) {
	begun := time.Now()
	lease, err := l.get(ctx)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{}
		lease.Namespace, lease.Name = l.o.Namespace, l.name
	} else if err != nil {
		return nil, begun
	}
	spec := &lease.Spec
	holder := deref(spec.HolderIdentity)
	if holder != "" && holder != l.o.Identity {
		if observed.version != lease.ResourceVersion {
			*observed = observation{lease.ResourceVersion, time.Now()}
		}
		if time.Since(observed.at) < expiry(lease) {
			l.refused.note("", "", nil) // no write is needed now
			return nil, begun
		}
	}
	now := metav1.NewMicroTime(time.Now())
	if holder != l.o.Identity {
		spec.AcquireTime, spec.LeaseTransitions = &now, new(max(0, deref(spec.LeaseTransitions)+1)) // without an overflow
	}
	spec.HolderIdentity = &l.o.Identity
	if lease, err = l.write(ctx, lease, l.o.Duration); err != nil {
		return nil, begun
	}
	return lease, begun
}

// maxDuration bounds the duration of a Lease, which another client may have edited.
const maxDuration = time.Minute

// expiry returns how long a Lease without a renewal excludes other holders.
func expiry(lease *coordinationv1.Lease) time.Duration {
	return min(time.Duration(deref(lease.Spec.LeaseDurationSeconds))*time.Second, maxDuration)
}

// failed records and logs a failed request. A request that is newly refused is logged as a warning.
func (l *Lease) failed(verb string, err error) {
	level := slog.LevelDebug
	if l.refused.note(verb, l.name, err) {
		level = slog.LevelWarn
	}
	l.o.Logger.Log(context.Background(), level, "failed to hold a Lease", "ns", l.o.Namespace, "name", l.name, "verb", verb, "err", err)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// lead calls fn and renews the lease, until ctx ends, fn has returned or the lease is lost. renewed is when the
// request that acquired it was begun, which is earlier than the time from which other replicas measure.
func (l *Lease) lead(ctx context.Context, lease *coordinationv1.Lease, renewed time.Time, fn func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := func() {
		l.setRenewed(time.Time{})
		cancel()
	}
	watchdog := time.AfterFunc(l.o.Deadline, lost)
	defer watchdog.Stop()
	renew := func(since time.Time) {
		l.setRenewed(since)
		watchdog.Reset(time.Until(since.Add(l.o.Deadline)))
	}
	renew(renewed)
	l.o.Logger.Info("leading", "name", l.name)
	ended := make(chan struct{})
	safe.Go(l.o.Logger, "leader", func() {
		defer close(ended)
		defer cancel()
		fn(ctx)
	})
	for {
		l.pause(ctx)
		// After a pause of the process, the clock tells of the lost lease before the watchdog has run.
		if ctx.Err() != nil || !l.Valid() {
			break
		}
		begun := time.Now()
		next, err := l.write(ctx, lease, l.o.Duration)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			if next, err = l.get(ctx); err == nil && deref(next.Spec.HolderIdentity) != l.o.Identity || apierrors.IsNotFound(err) {
				break // another replica holds it
			}
			if err == nil {
				lease = next // it was edited, and this instance still holds it
			}
			continue
		}
		if err == nil {
			lease = next
			renew(begun)
		}
	}
	valid := l.Valid()
	lost()
	<-ended
	l.o.Logger.Info("no longer leading", "name", l.name)
	if valid { // otherwise another replica may hold it by now
		l.release(context.WithoutCancel(ctx), lease)
	}
}

// release lets another replica acquire the lease at once. The API server refuses the write if the Lease has changed
// since, for example because another replica holds it.
func (l *Lease) release(ctx context.Context, lease *coordinationv1.Lease) {
	lease.Spec.HolderIdentity = new("")
	_, _ = l.write(ctx, lease, time.Second) // others take over after the duration if this fails
}

func (l *Lease) setRenewed(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = since
}

func (l *Lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	u, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		l.refused.note("get", l.name, nil)
	default:
		l.failed("get", err)
	}
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	return lease, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, lease)
}

// write creates the lease, or updates it if it was read, and returns the stored version. Others may acquire it after
// duration.
func (l *Lease) write(ctx context.Context, lease *coordinationv1.Lease, duration time.Duration) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
	now := metav1.NewMicroTime(time.Now())
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &now, new(int32(duration/time.Second))
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
