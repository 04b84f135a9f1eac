package bootstrap

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/aggregate"
)

// own merges the sources that are no other control planes. What they have is served to control planes that ask for it
// before the others have answered, for two that read each other would else wait for each other. It is done with when
// everything has come.
type own struct {
	sink config.Handler // gets the whole of them first, if some control plane is asked too

	mu     sync.Mutex
	merged *aggregate.Source // nil: nobody needs it any more
	others bool              // control planes are asked
}

func newOwn() *own {
	o := &own{}
	o.merged = aggregate.New(func(changes []kinds.Change) {
		o.mu.Lock()
		sink := o.sink
		if !o.others {
			sink = nil
		}
		o.mu.Unlock()
		if sink != nil {
			sink(changes)
		}
	})
	return o
}

// get returns what merges them, or nil.
func (o *own) get() *aggregate.Source {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.merged
}

func (o *own) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.merged = nil
}

// served has what they bring served early.
func (o *own) served(sink config.Handler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink = sink
}

// known sets whether control planes are asked. It is called before the source that the mesh configuration is in has
// brought it, so nothing was served yet.
func (o *own) known(others bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.others = others; !others || o.sink == nil {
		o.merged = nil
	}
}

// Add is aggregate.Source's, which own counts along.
func (a *sources) Add(name string) int {
	if m := a.own.get(); m != nil {
		m.Add(name)
	}
	return a.Source.Add(name)
}

// From is aggregate.Source's, which own listens in on.
func (a *sources) From(i int) config.Handler {
	next := a.Source.From(i)
	return func(changes []kinds.Change) {
		if m := a.own.get(); m != nil {
			m.From(i)(slices.Clone(changes))
		}
		next(changes)
	}
}

// FromOther is From for another control plane.
func (a *sources) FromOther(i int) config.Handler {
	if m := a.own.get(); m != nil {
		m.From(i)(nil)
	}
	return a.Source.From(i)
}

// takeOwn serves what is this server's own to control planes, until take has everything.
func (s *Server) takeOwn(changes []kinds.Change) {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	s.mu.Lock()
	whole := s.throttle != nil
	s.mu.Unlock()
	if whole {
		return
	}
	snap := s.world.commit(changes, time.Now())
	s.discovery.PublishObjects(snap)
	s.o.Logger.Info("own configuration synced: it is served to other control planes", "rev", snap.Revision, "awaited", s.from.Source.Awaited())
	s.opened.Do(func() { close(s.open) })
}

// waitOwn waits until there is something to serve to somebody.
func (s *Server) waitOwn(ctx context.Context) error {
	select {
	case <-s.open:
		return nil
	case <-ctx.Done():
		return s.from.Wait(ctx)
	}
}
