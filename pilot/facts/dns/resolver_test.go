package dns_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/dns"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// zone is a fake DNS zone that records the lookups, and the answers that a Resolver reports.
type zone struct {
	mu       sync.Mutex
	hosts    map[string][]string
	asked    map[string]int
	reported map[string][]string
	reports  int
}

func (z *zone) lookup(_ context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked[host]++
	found, ok := z.hosts[host]
	if !ok {
		return nil, errors.New("no such host")
	}
	var out []netip.Addr
	for _, a := range found {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func (z *zone) take(changes []kinds.Change) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, c := range changes {
		z.reported[c.Name] = *c.Object.Spec.(*[]string)
		z.reports++
	}
}

func (z *zone) set(host string, addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.hosts[host] = addresses; len(addresses) == 0 {
		delete(z.hosts, host)
	}
}

func (z *zone) want(t *testing.T, want map[string][]string, reports int) {
	t.Helper()
	synctest.Wait()
	z.mu.Lock()
	defer z.mu.Unlock()
	if !maps.EqualFunc(z.reported, want, slices.Equal) || z.reports != reports {
		t.Errorf("told %v in %d changes, want %v in %d", z.reported, z.reports, want, reports)
	}
}

func run(t *testing.T, test func(*testing.T, *zone, dns.Resolver)) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{hosts: map[string][]string{}, asked: map[string]int{}, reported: map[string][]string{}}
		r := dns.New(dns.Options{Handler: z.take, Logger: slog.New(slog.DiscardHandler), Lookup: z.lookup})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		test(t, z, r)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAnswers checks that a name is resolved at once and then periodically, that only changed answers are reported,
// and that a failing name keeps its addresses.
func TestAnswers(t *testing.T) {
	run(t, func(t *testing.T, z *zone, r dns.Resolver) {
		z.set("a", "192.0.2.2", "192.0.2.1", "::ffff:192.0.2.1")
		r.Want(facts.Needs("a", "b"))
		a := map[string][]string{"a": {"192.0.2.1", "192.0.2.2"}}
		z.want(t, a, 1)
		time.Sleep(time.Minute)
		z.want(t, a, 1)
		z.set("a")
		time.Sleep(time.Minute)
		z.want(t, a, 1)
		z.set("a", "192.0.2.3")
		z.set("b", "2001:db8::1")
		time.Sleep(2 * time.Minute) // both have failed, and are resolved again
		z.want(t, map[string][]string{"a": {"192.0.2.3"}, "b": {"2001:db8::1"}}, 3)
	})
}

// TestForgets checks that a name that is no longer wanted is not resolved.
func TestForgets(t *testing.T) {
	run(t, func(t *testing.T, z *zone, r dns.Resolver) {
		z.set("a", "192.0.2.1")
		r.Want(facts.Needs("a"))
		synctest.Wait()
		r.Want(nil)
		time.Sleep(time.Hour)
		z.mu.Lock()
		defer z.mu.Unlock()
		if z.asked["a"] != 1 {
			t.Errorf("asked %d times", z.asked["a"])
		}
	})
}

// Wait returns the first answers. A name without an answer delays it at most by the timeout, and not after Run has
// returned.
func TestWait(t *testing.T) {
	run(t, func(t *testing.T, z *zone, r dns.Resolver) {
		z.set("a", "192.0.2.1")
		r.Want(facts.Needs("a", "b"))
		if got := r.Wait(time.Hour); len(got) != 1 || got[0].Name != "a" ||
			!slices.Equal(*got[0].Object.Spec.(*[]string), []string{"192.0.2.1"}) {
			t.Errorf("%v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := dns.New(dns.Options{}) // Run is not called
		r.Want(facts.Needs("a"))
		began := time.Now()
		if got := r.Wait(time.Second); len(got) != 0 || time.Since(began) != time.Second {
			t.Errorf("%v after %v", got, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context, _, _ string) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
		r := dns.New(dns.Options{Logger: slog.New(slog.DiscardHandler), Lookup: silent, Timeout: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		r.Want(facts.Needs("a"))
		began := time.Now()
		if r.Wait(time.Hour); time.Since(began) != time.Second {
			t.Errorf("Wait ended after %v, Run after a second", time.Since(began))
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestDeadNames checks that names whose server does not answer are resolved less and less often, few at a time, and
// do not delay other names.
func TestDeadNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead = 300
		z := &zone{hosts: map[string][]string{"alive": {"192.0.2.1"}, "new": {"192.0.2.9"}}, asked: map[string]int{},
			reported: map[string][]string{}}
		var open, most atomic.Int32
		lookup := func(ctx context.Context, network, host string) ([]netip.Addr, error) {
			n := open.Add(1)
			defer open.Add(-1)
			if most.Load() < n {
				most.Store(n)
			}
			found, err := z.lookup(ctx, network, host)
			if err != nil {
				<-ctx.Done()
			}
			return found, err
		}
		var log strings.Builder
		r := dns.New(dns.Options{Handler: z.take, Logger: slog.New(slog.NewTextHandler(&log, nil)), Lookup: lookup})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		names := []string{"alive"}
		for i := range dead {
			names = append(names, fmt.Sprint("dead", i))
		}
		r.Want(facts.Needs(names...))
		time.Sleep(2 * (dead/16 + 1) * time.Second)
		z.want(t, map[string][]string{"alive": {"192.0.2.1"}}, 1)
		if n := most.Load(); n != 16 {
			t.Errorf("%d questions at once, want 16", n)
		}
		if n := len(r.Failing()); n != dead {
			t.Errorf("%d names fail, want %d", n, dead)
		}
		z.set("alive", "192.0.2.2")
		time.Sleep(33 * time.Second) // it waits at most until one lookup has ended
		z.want(t, map[string][]string{"alive": {"192.0.2.2"}}, 2)
		r.Want(facts.Needs(append(names, "new")...))
		time.Sleep(3 * time.Second)
		z.want(t, map[string][]string{"alive": {"192.0.2.2"}, "new": {"192.0.2.9"}}, 3)
		// New names that fail do not delay it either.
		for i := range 2 * dead {
			names = append(names, fmt.Sprint("late", i))
		}
		r.Want(facts.Needs(append(names, "new")...))
		z.set("alive", "192.0.2.4")
		time.Sleep(33 * time.Second)
		z.want(t, map[string][]string{"alive": {"192.0.2.4"}, "new": {"192.0.2.9"}}, 4)
		r.Want(facts.Needs(append(names[:dead+1], "new")...))

		time.Sleep(time.Hour)
		z.set("dead0", "192.0.2.3")
		time.Sleep(6 * time.Minute)
		z.want(t, map[string][]string{"alive": {"192.0.2.4"}, "new": {"192.0.2.9"}, "dead0": {"192.0.2.3"}}, 5)
		if why, fails := r.Failing()["dead0"]; fails {
			t.Errorf("dead0 still fails: %v", why)
		}
		z.mu.Lock()
		if n := z.asked["dead1"]; n < 12 || n > 20 {
			t.Errorf("a dead name was asked for %d times in 68 minutes", n)
		}
		if n := z.asked["alive"]; n < 120 {
			t.Errorf("the one that is well was asked for %d times in 68 minutes", n)
		}
		z.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "name=dead1 "); n != 1 {
			t.Errorf("a failure was told %d times", n)
		}
	})
}

// TestPanic checks that a name whose lookup panics is resolved again when it is due, and not before.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{hosts: map[string][]string{"a": {"192.0.2.1"}}, asked: map[string]int{}}
		r := dns.New(dns.Options{Logger: slog.New(slog.DiscardHandler),
			Lookup: func(ctx context.Context, network, host string) ([]netip.Addr, error) {
				_, _ = z.lookup(ctx, network, host)
				panic("lookup")
			}})
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second)
		defer cancel()
		r.Want(facts.Needs("a"))
		if err := r.Run(ctx); err != nil || z.asked["a"] != 4 {
			t.Errorf("asked %d times in 95 s: %v", z.asked["a"], err)
		}
	})
}
