package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/poll"
)

// TestOneNamespaceDelaysNoOther lets one namespace name hundreds of servers that never answer. The names of another
// namespace are still asked for at once, when they are new and when they are due, even names that the first namespace
// needs too.
func TestOneNamespaceDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		start := time.Now()
		var mu sync.Mutex
		answered := map[string][]time.Duration{} // times at which each good name was asked for, since the start
		open, most := 0, 0                       // questions that hang
		handed := map[string]bool{}
		p := poll.New(poll.Options[string]{
			Kind: kinds.JWKS, Logger: slog.New(slog.DiscardHandler), Interval: every, MinBackoff: time.Second, MaxBackoff: every,
			Handler: func(list []kinds.Change) {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range list {
					handed[c.Name] = true
				}
			},
			Ask: func(ctx context.Context, name string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if name[0] == 'g' {
					answered[name] = append(answered[name], time.Since(start))
					return name, nil
				}
				open++
				most = max(most, open)
				mu.Unlock()
				ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
				defer cancel()
				<-ctx.Done()
				mu.Lock()
				open--
				return "", errors.New("no answer")
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()

		var needs []facts.Need
		for i := range 300 {
			needs = append(needs, facts.Need{Name: fmt.Sprintf("hole%d", i), Namespaces: []string{"bad"}})
		}
		p.Want(needs)
		synctest.Wait()
		mu.Lock()
		if most == 0 || most > 16 {
			t.Errorf("%d questions of one namespace are open", most)
		}
		mu.Unlock()
		needs = append(needs, facts.Need{Name: "good", Namespaces: []string{"other"}},
			facts.Need{Name: "good shared", Namespaces: []string{"bad", "other"}})
		p.Want(needs)
		synctest.Wait()
		mu.Lock()
		if !handed["good"] || !handed["good shared"] {
			t.Errorf("handed on %v", handed)
		}
		mu.Unlock()

		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		for name, times := range answered {
			for i := 1; i < len(times); i++ {
				if gap := times[i] - times[i-1]; gap > every {
					t.Errorf("%s was not asked for for %s", name, gap)
				}
			}
			if len(times) < 60 {
				t.Errorf("%s was asked for %d times in an hour", name, len(times))
			}
		}
		mu.Unlock()

		// The first question about a name ends soon, however long its server takes.
		before := time.Now()
		p.Want([]facts.Need{{Name: "hole of another", Namespaces: []string{"third"}}})
		p.Wait(time.Hour)
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("the first question took %s", took)
		}
		if _, failing := p.Failing()["hole of another"]; !failing {
			t.Errorf("failing: %v", p.Failing())
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestBoundsOfNamespaces checks that a namespace has answers to a bounded number of names, of a bounded size. Names
// over a limit are missing and fail with the reason, even if they had an answer before. Names that another namespace
// needs too are available.
func TestBoundsOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		there := map[string]string{} // answers that the Handler has
		sizes := map[string]int{}    // sizes of answers; 1 if missing
		p := poll.New(poll.Options[string]{
			Kind: kinds.JWKS, Logger: slog.New(slog.DiscardHandler), Interval: time.Hour, MinBackoff: time.Second, MaxBackoff: time.Minute,
			MaxNames: 4, MaxBytes: 10, Size: func(s string) int { return len(s) },
			Handler: func(list []kinds.Change) {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range list {
					if text, ok := facts.Value[string](c.Object); ok {
						there[c.Name] = text
					} else {
						delete(there, c.Name)
					}
				}
			},
			Ask: func(_ context.Context, name string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				return strings.Repeat("x", max(sizes[name], 1)), nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		need := func(names string, namespaces ...string) (list []facts.Need) {
			for _, n := range names {
				list = append(list, facts.Need{Name: string(n), Namespaces: namespaces})
			}
			return list
		}
		check := func(what, wanted, failing string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(slices.Sorted(maps.Keys(there)), ""); got != wanted {
				t.Errorf("%s: there is %q, want %q", what, got, wanted)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(p.Failing())), ""); got != failing {
				t.Errorf("%s: %q fail, want %q", what, got, failing)
			}
		}
		p.Want(need("abcd", "n"))
		check("at the bound", "abcd", "")
		p.Want(append(need("abcdef", "n"), need("gh", "m")...))
		before := time.Now()
		if p.Wait(time.Hour); time.Since(before) > 0 {
			t.Error("names beyond the bound are waited for")
		}
		check("names beyond it", "abcdgh", "ef")
		if why := p.Failing()["e"].Why; why != "namespace n needs more than 4 of them" {
			t.Errorf("it fails because %s", why)
		}
		p.Want(slices.Concat(need("0abcd", "n"), need("e", "m", "n"), need("gh", "m")))
		check("one before, and one that another needs", "0abcegh", "d")
		p.Want(need("cdef", "n"))
		mu.Lock()
		for _, gone := range []string{"0", "a", "b", "g", "h"} { // the Builder drops these
			delete(there, gone)
		}
		mu.Unlock()
		check("fewer again", "cdef", "")

		// Four bytes are in force.
		mu.Lock()
		sizes["c"], sizes["d"] = 7, 2
		mu.Unlock()
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		mu.Lock()
		if c, d := len(there["c"]), len(there["d"]); c+d+2 > 10 || c+d == 2 {
			t.Errorf("answers of %d and %d bytes", c, d)
		}
		sizes["c"], sizes["d"] = 20, 1
		mu.Unlock()
		time.Sleep(2 * time.Hour)
		check("an answer that has grown", "cdef", "c")
		if why := p.Failing()["c"].Why; why != "the answers that namespace n needs have more than 10 bytes" {
			t.Errorf("it fails because %s", why)
		}
		mu.Lock()
		sizes["e"], sizes["z"] = 1, 20
		mu.Unlock()
		p.Want(need("cz", "n"))
		mu.Lock()
		delete(there, "d")
		delete(there, "e")
		delete(there, "f")
		mu.Unlock()
		check("a large one that is new", "c", "cz")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
