package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/poll"
)

// TestOneNamespaceDelaysNoOther: a namespace names hundreds of servers that never answer. Another one's names are still
// asked for at once, when they are new and each time that they are due, also those that the first namespace names too.
func TestOneNamespaceDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		start := time.Now()
		var mu sync.Mutex
		answered := map[string][]time.Duration{} // when each good name was asked for, since the start
		open, most := 0, 0                       // questions that hang
		handed := map[string]bool{}
		p := poll.New(poll.Options[string]{
			Kind: kinds.JWKS, Logger: slog.New(slog.DiscardHandler), Every: every, Retry: time.Second, Longest: every,
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
		needs = append(needs, facts.Need{Name: "good", Namespaces: []string{"other"}}, facts.Need{Name: "good shared", Namespaces: []string{"bad", "other"}})
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

		// The first question of a name ends soon, whatever its server takes.
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
