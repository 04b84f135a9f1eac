package resolver_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/resolver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// zone is a DNS that a test writes, and what the resolver made of it.
type zone struct {
	mu    sync.Mutex
	hosts map[string][]string
	asked map[string]int
	told  map[string][]string
	tells int
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
		z.told[c.Name] = *c.Object.Spec.(*[]string)
		z.tells++
	}
}

func (z *zone) set(host string, addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.hosts[host] = addresses; len(addresses) == 0 {
		delete(z.hosts, host)
	}
}

func (z *zone) want(t *testing.T, want map[string][]string, tells int) {
	t.Helper()
	synctest.Wait()
	z.mu.Lock()
	defer z.mu.Unlock()
	if !maps.EqualFunc(z.told, want, slices.Equal) || z.tells != tells {
		t.Errorf("told %v in %d changes, want %v in %d", z.told, z.tells, want, tells)
	}
}

func run(t *testing.T, test func(*testing.T, *zone, *resolver.Resolver)) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{hosts: map[string][]string{}, asked: map[string]int{}, told: map[string][]string{}}
		r := resolver.New(resolver.Options{Handler: z.take, Logger: slog.New(slog.DiscardHandler), Lookup: z.lookup})
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

// A name is resolved at once and then again and again; only what differs is told, and what fails keeps its addresses.
func TestAnswers(t *testing.T) {
	run(t, func(t *testing.T, z *zone, r *resolver.Resolver) {
		z.set("a", "192.0.2.2", "192.0.2.1", "::ffff:192.0.2.1")
		r.Want([]string{"a", "b"})
		a := map[string][]string{"a": {"192.0.2.1", "192.0.2.2"}}
		z.want(t, a, 1)
		time.Sleep(time.Minute)
		z.want(t, a, 1)
		z.set("a")
		time.Sleep(time.Minute)
		z.want(t, a, 1)
		z.set("a", "192.0.2.3")
		z.set("b", "2001:db8::1")
		time.Sleep(6 * time.Second) // both are asked for again soon after a failure
		z.want(t, map[string][]string{"a": {"192.0.2.3"}, "b": {"2001:db8::1"}}, 3)
	})
}

// Who is not wanted any more is not asked for.
func TestForgets(t *testing.T) {
	run(t, func(t *testing.T, z *zone, r *resolver.Resolver) {
		z.set("a", "192.0.2.1")
		r.Want([]string{"a"})
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

// Wait gives the first answers; a name without one holds it up only as long as the context says.
func TestWait(t *testing.T) {
	run(t, func(t *testing.T, z *zone, r *resolver.Resolver) {
		z.set("a", "192.0.2.1")
		r.Want([]string{"a", "b"})
		if got := r.Wait(t.Context()); !slices.Equal(got["a"], []string{"192.0.2.1"}) || len(got["b"]) != 0 {
			t.Errorf("%v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := resolver.New(resolver.Options{}) // does not run
		r.Want([]string{"a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := r.Wait(ctx); len(got["a"]) != 0 || ctx.Err() == nil {
			t.Errorf("%v", got)
		}
	})
}
