package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// presencePrefix begins the names of the Leases by which processes that are no pods show that they run.
const presencePrefix = "istio-instance-"

// presenceName is the Lease of an instance.
func presenceName(instance string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(instance))
	return strings.TrimRight((presencePrefix + name)[:min(len(presencePrefix)+len(name), 253)], "-.")
}

// Presence shows that this process runs, though it is no pod: it holds a Lease of its own. Name of Options is not used.
type Presence struct {
	lease   *Lease
	present chan struct{} // closed once it is held
	once    sync.Once
}

// NewPresence makes a Presence that nobody knows yet.
func NewPresence(o Options) (*Presence, error) {
	o.Name, o.Revision = presenceName(o.Identity), ""
	lease, err := New(o)
	if err != nil {
		return nil, err
	}
	lease.refused.effect = "this server registers no workloads"
	return &Presence{lease: lease, present: make(chan struct{})}, nil
}

// Findings returns what the API server forbids to this process.
func (p *Presence) Findings() []diag.Diagnostic { return p.lease.Findings() }

// Run holds the Lease until ctx ends, and then takes it away.
func (p *Presence) Run(ctx context.Context) error {
	p.lease.Run(ctx, func(ctx context.Context) {
		p.once.Do(func() {
			close(p.present)
			p.tidy(ctx)
		})
		<-ctx.Done()
	})
	err := p.lease.leases.Delete(context.WithoutCancel(ctx), p.lease.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		p.lease.o.Logger.Debug("failed to delete lease", "name", p.lease.name, "err", err)
	}
	return nil
}

// tidy deletes the Leases of processes that were killed long ago, if it may. Observers see that they are gone either
// way.
func (p *Presence) tidy(ctx context.Context) {
	list, err := p.lease.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		p.lease.o.Logger.Debug("failed to list old leases", "err", err)
		return
	}
	for _, u := range list.Items {
		lease := &coordinationv1.Lease{}
		if !strings.HasPrefix(u.GetName(), presencePrefix) || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, lease) != nil {
			continue
		}
		if renewed := lease.Spec.RenewTime; renewed == nil || time.Since(renewed.Time) < longAgo {
			continue
		}
		of := metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(lease.ResourceVersion).Preconditions}
		if err := p.lease.leases.Delete(ctx, lease.Name, of); err != nil {
			p.lease.o.Logger.Debug("failed to delete old lease", "name", lease.Name, "err", err)
		}
	}
}

// Wait waits until other processes can know that this one runs. It logs if that takes long.
func (p *Presence) Wait(ctx context.Context) error {
	late := time.NewTimer(p.lease.o.Duration)
	defer late.Stop()
	for {
		select {
		case <-p.present:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			p.lease.o.Logger.Warn("failed to write lease: until then this process writes nothing", "fix", "grant get, create and update of Leases to it",
				"ns", p.lease.o.Namespace, "name", p.lease.name)
		}
	}
}

// Observer finds processes with a Presence that do not run any more.
type Observer struct {
	leases  dynamic.ResourceInterface
	refused refusal

	mu   sync.Mutex
	seen map[string]observed // by instance
}

// observed is what was seen of one instance.
type observed struct {
	sighting
	asked time.Time
	gone  bool
}

// Bounds of what is asked and remembered.
const (
	askAgain  = 5 * time.Second
	forgotten = 10 * time.Minute
	longAgo   = 24 * time.Hour // by two clocks, so it is long
)

// NewObserver makes an Observer. Of Options, Client, Namespace and Logger count.
func NewObserver(o Options) (*Observer, error) {
	if o.Namespace == "" {
		return nil, errors.New("an observer of leases needs a namespace")
	}
	c := rest.CopyConfig(o.Client)
	c.Timeout = askAgain
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("client of leases: %w", err)
	}
	return &Observer{
		leases: client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(o.Namespace), seen: map[string]observed{},
		refused: refusal{effect: "this server keeps the entries of servers outside the cluster, whether these run or not", namespace: o.Namespace},
	}, nil
}

// Findings returns what the API server forbids to this process.
func (o *Observer) Findings() []diag.Diagnostic { return o.refused.Findings() }

// Gone reports whether an instance has no Lease, has given it up, or has not renewed it for its duration, by this
// process's clock. While the API server does not answer nobody is gone. It may take as long as a request.
func (o *Observer) Gone(ctx context.Context, instance string) bool {
	o.mu.Lock()
	was, known := o.seen[instance]
	o.mu.Unlock()
	if known && time.Since(was.asked) < askAgain {
		return was.gone
	}
	now := o.look(ctx, instance, was)
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.seen, func(_ string, s observed) bool { return time.Since(s.asked) > forgotten })
	o.seen[instance] = now
	return now.gone
}

func (o *Observer) look(ctx context.Context, instance string, was observed) observed {
	now := observed{sighting: was.sighting, asked: time.Now()}
	name := presenceName(instance)
	u, err := o.leases.Get(ctx, name, metav1.GetOptions{})
	now.gone = apierrors.IsNotFound(err)
	if now.gone {
		o.refused.note("", "", nil)
		return now
	}
	if o.refused.note("get", name, err); err != nil {
		return now
	}
	lease := &coordinationv1.Lease{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, lease) != nil {
		return now
	}
	if holder := deref(lease.Spec.HolderIdentity); holder != instance {
		now.gone = true
		return now
	}
	if now.version != lease.ResourceVersion {
		now.sighting = sighting{lease.ResourceVersion, now.asked}
	}
	now.gone = now.asked.Sub(now.at) >= time.Duration(deref(lease.Spec.LeaseDurationSeconds))*time.Second
	return now
}
