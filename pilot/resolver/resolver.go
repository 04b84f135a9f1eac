package resolver

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options of a Resolver.
type Options struct {
	Handler config.Handler // gets the answers that differ from the last ones
	Logger  *slog.Logger
	Lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error) // nil is the machine's own resolver
	Every   time.Duration                                                         // how often a name is asked for; 0 is 30 s
	Retry   time.Duration                                                         // how soon again after a failure; 0 is 5 s
	Timeout time.Duration                                                         // of one question; 0 is 2 s
}

// Resolver resolves the names that are wanted.
type Resolver struct {
	o    Options
	wake chan struct{}

	mu    sync.Mutex
	names map[string]*name
}

// name is one that is wanted.
type name struct {
	addresses []string      // sorted
	tried     chan struct{} // closed once it was asked for
	due       time.Time
	wrong     string // the last failure, told once
}

// New makes a Resolver that wants nothing.
func New(o Options) *Resolver {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupNetIP
	}
	o.Every, o.Retry, o.Timeout = cmp.Or(o.Every, 30*time.Second), cmp.Or(o.Retry, 5*time.Second), cmp.Or(o.Timeout, 2*time.Second)
	return &Resolver{o: o, wake: make(chan struct{}, 1), names: map[string]*name{}}
}

// Want replaces the names that are resolved. It does not wait.
func (r *Resolver) Want(hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := false
	next := make(map[string]*name, len(hosts))
	for _, h := range hosts {
		n := r.names[h]
		if n == nil {
			n, fresh = &name{tried: make(chan struct{})}, true
		}
		next[h] = n
	}
	r.names = next
	if fresh {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Wait gives what is known of the names that are wanted, once each was asked for or ctx ends. Run has to be running.
func (r *Resolver) Wait(ctx context.Context) map[string][]string {
	r.mu.Lock()
	var all []*name
	for _, n := range r.names {
		all = append(all, n)
	}
	r.mu.Unlock()
	for _, n := range all {
		select {
		case <-n.tried:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]string{}
	for h, n := range r.names {
		out[h] = n.addresses
	}
	return out
}

// Run resolves until ctx ends.
func (r *Resolver) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
		for {
			host, wait := r.next(time.Now())
			if host == "" {
				timer.Reset(wait)
				break
			}
			r.resolve(ctx, host)
			if ctx.Err() != nil {
				return nil
			}
		}
	}
}

// next gives a name that is due, or the time until one is.
func (r *Resolver) next(now time.Time) (host string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = r.o.Every
	var first *name
	for h, n := range r.names {
		if first == nil || n.due.Before(first.due) {
			host, first = h, n
		}
	}
	if first == nil {
		return "", wait
	}
	if left := first.due.Sub(now); left > 0 {
		return "", left
	}
	return host, 0
}

func (r *Resolver) resolve(ctx context.Context, host string) {
	ask, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	found, err := r.o.Lookup(ask, "ip", host)
	var addresses []string
	for _, a := range found {
		addresses = append(addresses, a.Unmap().WithZone("").String())
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)

	if r.answer(host, addresses, err) {
		key := kinds.Key{Kind: kinds.HostAddresses, Name: host}
		r.o.Handler([]kinds.Change{{Key: key, Object: &kinds.Object{Key: key, Spec: &addresses}}})
	}
}

// answer takes in what a question found, and tells whether that is new.
func (r *Resolver) answer(host string, addresses []string, err error) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.names[host]
	if n == nil {
		return false // nobody wants it any more
	}
	select {
	case <-n.tried:
	default:
		defer close(n.tried)
	}
	if err != nil || len(addresses) == 0 {
		n.due = time.Now().Add(r.o.Retry)
		wrong := "it has no address"
		if err != nil {
			wrong = err.Error()
		}
		if n.wrong != wrong {
			n.wrong = wrong
			r.o.Logger.Warn("the name of a gateway between networks cannot be resolved: it keeps its last addresses", "name", host, "addresses", len(n.addresses), "err", wrong)
		}
		return false
	}
	n.due, n.wrong = time.Now().Add(r.o.Every), ""
	if slices.Equal(n.addresses, addresses) {
		return false
	}
	n.addresses = addresses
	return true
}
