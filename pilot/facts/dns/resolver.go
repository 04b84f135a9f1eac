package dns

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
)

// Options of a Resolver.
type Options struct {
	Handler config.Handler // gets the answers that differ from the last ones; called from several goroutines
	Logger  *slog.Logger
	Lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error) // nil is the machine's own resolver
	Every   time.Duration                                                         // how often a name is asked for; 0 is 30 s
	Longest time.Duration                                                         // what Every doubles up to as a name goes on failing; 0 is 5 min
	Timeout time.Duration                                                         // of one question; 0 is 2 s
}

// atOnce is how many questions are open at a time: names whose server does not answer must not keep the others waiting.
const atOnce = 16

// Resolver is the facts.Provider of the addresses of host names.
type Resolver struct {
	o     Options
	wake  chan struct{}
	ended chan struct{} // closed when Run has ended

	mu    sync.Mutex
	open  int // questions
	names map[string]*name
}

// name is one that is wanted.
type name struct {
	host      string
	addresses []string      // sorted
	tried     chan struct{} // closed once it was asked for
	asking    bool
	due       time.Time
	failures  int       // since it was last resolved
	wrong     string    // the last of them
	since     time.Time // the first of them
}

var _ facts.Provider = (*Resolver)(nil)

// New makes a Resolver that wants nothing.
func New(o Options) *Resolver {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupNetIP
	}
	o.Every, o.Longest, o.Timeout = cmp.Or(o.Every, 30*time.Second), cmp.Or(o.Longest, 5*time.Minute), cmp.Or(o.Timeout, 2*time.Second)
	return &Resolver{o: o, wake: make(chan struct{}, 1), ended: make(chan struct{}), names: map[string]*name{}}
}

// Want replaces the names that are resolved. It does not wait.
func (r *Resolver) Want(hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]*name, len(hosts))
	for _, h := range hosts {
		n := r.names[h]
		if n == nil {
			n = &name{host: h, tried: make(chan struct{}), due: time.Now()}
		}
		next[h] = n
	}
	r.names = next
	r.look()
}

// look has Run see what is due.
func (r *Resolver) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Wait returns what is known of the names that are wanted, once each was asked for, or after so long, or when Run has
// ended.
func (r *Resolver) Wait(longest time.Duration) []kinds.Change {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.names))
	r.mu.Unlock()
	late := time.NewTimer(longest)
	defer late.Stop()
	for _, n := range all {
		select {
		case <-n.tried:
			continue
		case <-late.C:
		case <-r.ended:
		}
		break
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []kinds.Change
	for h, n := range r.names {
		if addresses := n.addresses; len(addresses) > 0 {
			out = append(out, facts.Change(kinds.HostAddresses, h, &addresses))
		}
	}
	return out
}

// Failing returns the names that could not be resolved when they were last asked for.
func (r *Resolver) Failing() map[string]facts.Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]facts.Failure{}
	for h, n := range r.names {
		if n.failures > 0 {
			out[h] = facts.Failure{Why: n.wrong, Since: n.since}
		}
	}
	return out
}

// Run resolves until ctx ends.
func (r *Resolver) Run(ctx context.Context) error {
	defer close(r.ended)
	var asking sync.WaitGroup
	defer asking.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n, wait := r.next(time.Now())
		if n != nil {
			asking.Add(1)
			safe.Go(r.o.Logger, "resolver", func() {
				defer asking.Done()
				defer r.end(n)
				r.resolve(ctx, n)
			})
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// rank orders names: those that are well, new ones, those that failed.
func (n *name) rank() int {
	switch {
	case n.failures > 0:
		return 2
	case len(n.addresses) == 0:
		return 1
	}
	return 0
}

// next takes a name that is due, or returns the time until one is. At the bound, the end of a question wakes Run.
func (r *Resolver) next(now time.Time) (first *name, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = r.o.Every
	if r.open == atOnce {
		return nil, wait
	}
	for _, n := range r.names {
		switch left := n.due.Sub(now); {
		case n.asking:
		case left > 0:
			wait = min(wait, left)
		case first == nil || cmp.Or(cmp.Compare(n.rank(), first.rank()), n.due.Compare(first.due)) < 0:
			first = n
		}
	}
	if first != nil {
		first.asking, first.due = true, now.Add(r.o.Every)
		r.open++
	}
	return first, wait
}

// end is called after each question.
func (r *Resolver) end(n *name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.asking = false
	r.open--
	r.look()
}

func (r *Resolver) resolve(ctx context.Context, n *name) {
	ask, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	found, err := r.o.Lookup(ask, "ip", n.host)
	if ctx.Err() != nil {
		return
	}
	var addresses []string
	for _, a := range found {
		addresses = append(addresses, a.Unmap().WithZone("").String())
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)

	if r.answer(n, addresses, err) {
		r.o.Handler([]kinds.Change{facts.Change(kinds.HostAddresses, n.host, &addresses)})
	}
}

// answer takes in what a question found, and reports whether that is new.
func (r *Resolver) answer(n *name, addresses []string, err error) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[n.host] != n {
		return false // nobody wants it any more
	}
	select {
	case <-n.tried:
	default:
		defer close(n.tried)
	}
	if err != nil || len(addresses) == 0 {
		n.wrong = "it has no address"
		if err != nil {
			n.wrong = err.Error()
		}
		if n.failures == 0 {
			n.since = time.Now()
			r.o.Logger.Warn("the name of a gateway between networks cannot be resolved: it keeps its last addresses", "name", n.host, "addresses", len(n.addresses), "err", n.wrong)
		}
		n.due = time.Now().Add(min(r.o.Every<<min(n.failures, 16), r.o.Longest))
		n.failures++
		return false
	}
	n.due, n.failures = time.Now().Add(r.o.Every), 0
	if slices.Equal(n.addresses, addresses) {
		return false
	}
	n.addresses = addresses
	return true
}
