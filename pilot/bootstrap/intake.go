package bootstrap

import (
	"context"
	"fmt"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// intake gathers what sources hand on first, so that the first snapshot is made of all of it at once; what comes later goes on to a sink.
type intake struct {
	mu      sync.Mutex
	first   []kinds.Change
	missing map[string]bool // sources whose first call is awaited
	whole   chan struct{}   // closed when none is
	sink    func([]kinds.Change)
}

func newIntake(sources ...string) *intake {
	i := &intake{missing: map[string]bool{}, whole: make(chan struct{})}
	for _, s := range sources {
		i.missing[s] = true
	}
	if len(sources) == 0 {
		close(i.whole)
	}
	return i
}

// from gives the handler of one source. keep says which of its changes count; nil: all.
func (i *intake) from(source string, keep func(kinds.Key) bool) config.Handler {
	return func(changes []kinds.Change) {
		if keep != nil {
			kept := make([]kinds.Change, 0, len(changes))
			for _, c := range changes {
				if keep(c.Key) {
					kept = append(kept, c)
				}
			}
			changes = kept
		}
		i.take(source, changes)
	}
}

func (i *intake) take(source string, changes []kinds.Change) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sink != nil {
		if len(changes) > 0 {
			i.sink(changes)
		}
		return
	}
	i.first = append(i.first, changes...)
	if i.missing[source] {
		if delete(i.missing, source); len(i.missing) == 0 {
			close(i.whole)
		}
	}
}

// wait blocks until every source has handed on what it has, or ctx ends.
func (i *intake) wait(ctx context.Context) error {
	select {
	case <-i.whole:
		return nil
	case <-ctx.Done():
		select {
		case <-i.whole: // both: what is whole counts
			return nil
		default:
		}
		return fmt.Errorf("wait for sources to sync: %w", ctx.Err())
	}
}

// open hands the first changes to commit and all later ones to sink, in order.
func (i *intake) open(commit, sink func([]kinds.Change)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	commit(i.first)
	i.first, i.sink = nil, sink
}
