package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

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

// Lease is the right to write.
type Lease struct {
	o      Options
	name   string
	leases coordinationv1.LeasesGetter

	mu      sync.Mutex
	renewed time.Time // when the request was begun that renewed it last; zero: it is not held
}

// New makes a Lease that is not held.
func New(o Options) (*Lease, error) {
	if o.Identity == "" || o.Namespace == "" || o.Name == "" {
		return nil, errors.New("a lease needs a namespace, a name and the identity of this instance")
	}
	o.Duration, o.Deadline, o.Retry = cmp.Or(o.Duration, 12*time.Second), cmp.Or(o.Deadline, 8*time.Second), cmp.Or(o.Retry, 1500*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lease{o: o, name: o.Name}
	if o.Revision != "" && o.Revision != "default" {
		l.name += "-" + o.Revision
	}
	c := rest.CopyConfig(o.Client)
	c.Timeout = o.Deadline / 2 // a request that hangs leaves time for another
	c.QPS, c.Burst = -1, 0     // renewals wait for nothing else
	client, err := coordinationv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("client of lease %s: %w", l.name, err)
	}
	l.leases = client
	return l, nil
}

// Valid tells whether this instance may write at this very moment.
func (l *Lease) Valid() bool {
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

// Run calls fn each time that this instance becomes the leader, until ctx ends. The context that fn gets ends the moment leadership is lost; fn should return soon
// after, for until then this instance stands for no election. When fn returns by itself, or panics, leadership is given up. Run returns after fn has, and after the
// lease was released.
func (l *Lease) Run(ctx context.Context, fn func(context.Context)) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quieter{l.o.Logger.Handler()}))
	for ctx.Err() == nil {
		if err := l.term(ctx, fn); err != nil {
			l.o.Logger.Error("no election is possible", "name", l.name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.o.Retry):
		}
	}
}

// term stands for election and leads once.
func (l *Lease) term(ctx context.Context, fn func(context.Context)) error {
	ctx, lose := context.WithCancel(ctx)
	defer lose()
	t := &term{lease: l, lose: lose, ended: make(chan struct{})}
	t.Interface = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.o.Namespace, Name: l.name}, Client: l.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.o.Identity},
	}
	t.watchdog = time.AfterFunc(l.o.Deadline, func() {
		l.lost()
		lose()
	})
	t.watchdog.Stop()
	defer t.watchdog.Stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: t, LeaseDuration: l.o.Duration, RenewDeadline: l.o.Deadline, RetryPeriod: l.o.Retry, ReleaseOnCancel: true, Name: l.name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStoppedLeading: func() {},
			OnStartedLeading: func(context.Context) {
				defer close(t.ended)
				defer lose()
				if ctx.Err() != nil {
					return
				}
				l.o.Logger.Info("leading", "name", l.name)
				safe.Run(l.o.Logger, "leader", func() { fn(ctx) })
				l.o.Logger.Info("no longer leading", "name", l.name)
			},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	l.lost()
	lose()
	if t.acquired {
		<-t.ended
	}
	return nil
}

func (l *Lease) held(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = since
}

func (l *Lease) lost() { l.held(time.Time{}) }

// term is the lock as the elector sees it. Its methods are called by one goroutine at a time.
type term struct {
	resourcelock.Interface
	lease    *Lease
	lose     context.CancelFunc
	watchdog *time.Timer
	acquired bool
	another  bool          // holds the lease, when last read
	ended    chan struct{} // closed when fn has returned; only if acquired
}

// Get notices that another instance has taken over.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.Interface.Get(ctx)
	t.another = err == nil && record.HolderIdentity != t.Identity()
	if t.acquired && t.another {
		t.lease.lost()
		t.lose()
	}
	return record, raw, err
}

// Create acquires a lease that nobody ever held.
func (t *term) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.write(func() error { return t.Interface.Create(ctx, r) })
}

// Update acquires, renews or releases. A release waits until fn has returned.
func (t *term) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == t.Identity() {
		return t.write(func() error { return t.Interface.Update(ctx, r) })
	}
	t.lease.lost()
	t.lose()
	select {
	case <-t.ended:
		if t.another { // the elector goes by what it believed before it was stopped, and would release what another holds by now
			return nil
		}
		return t.Interface.Update(ctx, r)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write counts the lease from the beginning of the request: the others count from its end, or later.
func (t *term) write(request func() error) error {
	began := time.Now()
	if err := request(); err != nil {
		return err
	}
	t.acquired = true
	t.lease.held(began)
	t.watchdog.Reset(time.Until(began.Add(t.lease.o.Deadline)))
	return nil
}

// quieter takes the elector's words down to Debug: what it tells as news is routine.
type quieter struct{ slog.Handler }

func (q quieter) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(a []slog.Attr) slog.Handler { return quieter{q.Handler.WithAttrs(a)} }
func (q quieter) WithGroup(name string) slog.Handler   { return quieter{q.Handler.WithGroup(name)} }
