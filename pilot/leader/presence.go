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

// presencePrefix is the prefix of the names of all presence Leases.
const presencePrefix = "istio-instance-"

// presenceName returns the name of the Lease of an instance. Each part between dots begins and ends with a letter or a
// digit, as the API server demands.
func presenceName(instance string) string {
	name := presencePrefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(instance))
	var parts []string
	for part := range strings.SplitSeq(name[:min(len(name), 253)], ".") {
		if part = strings.Trim(part, "-"); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ".")
}

// Presence shows other processes that this one runs, by a Lease that only it holds. It is for processes that are no
// pods. It ignores Name and Revision of Options.
type Presence struct {
	lease   *Lease
	present chan struct{} // closed when the Lease is first held
	once    sync.Once
}

// NewPresence returns a Presence. Its Lease is written when Run is called.
func NewPresence(o Options) (*Presence, error) {
	o.Name, o.Revision = presenceName(o.Identity), ""
	lease, err := New(o)
	if err != nil {
		return nil, err
	}
	lease.refused.effect = "this server registers no workloads"
	return &Presence{lease: lease, present: make(chan struct{})}, nil
}

// Findings returns a finding if the API server has refused the last request for the Lease.
func (p *Presence) Findings() []diag.Diagnostic { return p.lease.Findings() }

// Run holds the Lease until ctx ends, and then deletes it. It returns nil.
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

// tidy deletes stale presence Leases, if RBAC allows. Observers treat them as gone in any case.
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
		if renewed := lease.Spec.RenewTime; renewed == nil || time.Since(renewed.Time) < staleAfter {
			continue
		}
		precondition := metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(lease.ResourceVersion).Preconditions}
		if err := p.lease.leases.Delete(ctx, lease.Name, precondition); err != nil {
			p.lease.o.Logger.Debug("failed to delete old lease", "name", lease.Name, "err", err)
		}
	}
}

// Wait returns when the Lease was written, or when ctx ends with its error. It logs a warning if that takes long.
func (p *Presence) Wait(ctx context.Context) error {
	warning := time.NewTimer(p.lease.o.Duration)
	defer warning.Stop()
	for {
		select {
		case <-p.present:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-warning.C:
			p.lease.o.Logger.Warn("failed to write the Lease of this process: it makes no other writes until then",
				"fix", "grant it get, create and update of Leases, or correct what its finding names", "ns", p.lease.o.Namespace, "name", p.lease.name)
		}
	}
}

// Observer finds processes with a Presence that no longer run.
type Observer struct {
	leases  dynamic.ResourceInterface
	refused refusal

	mu    sync.Mutex
	cache map[string]presence // by instance
}

// presence is the cached state of one instance.
type presence struct {
	observation
	asked time.Time
	gone  bool
}

// Times of the cache and of stale Leases.
const (
	// cacheTTL is how long an answer is reused. It also bounds each request.
	cacheTTL   = 5 * time.Second
	evictAfter = 10 * time.Minute
	staleAfter = 24 * time.Hour // generous, because it compares the clocks of two machines
)

// NewObserver returns an Observer. It uses only Client and Namespace of Options.
func NewObserver(o Options) (*Observer, error) {
	if o.Namespace == "" {
		return nil, errors.New("an observer of leases needs a namespace")
	}
	c := rest.CopyConfig(o.Client)
	c.Timeout = cacheTTL
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("client of leases: %w", err)
	}
	return &Observer{
		leases: client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(o.Namespace), cache: map[string]presence{},
		refused: refusal{effect: "this server keeps the entries of servers outside the cluster, whether these run or not",
			namespace: o.Namespace},
	}, nil
}

// Findings returns a finding if the API server has refused the last request for a Lease.
func (o *Observer) Findings() []diag.Diagnostic { return o.refused.Findings() }

// Gone reports whether an instance has no Lease, has released it, or has not renewed it for its duration, by this
// process's clock. It returns false while the API server is unreachable. It blocks for up to one request timeout.
func (o *Observer) Gone(ctx context.Context, instance string) bool {
	o.mu.Lock()
	previous, known := o.cache[instance]
	o.mu.Unlock()
	if known && time.Since(previous.asked) < cacheTTL {
		return previous.gone
	}
	now := o.read(ctx, instance, previous)
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.cache, func(_ string, s presence) bool { return time.Since(s.asked) > evictAfter })
	o.cache[instance] = now
	return now.gone
}

func (o *Observer) read(ctx context.Context, instance string, previous presence) presence {
	now := presence{observation: previous.observation, asked: time.Now()}
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
		now.observation = observation{lease.ResourceVersion, now.asked}
	}
	now.gone = now.asked.Sub(now.at) >= expiry(lease)
	return now
}
