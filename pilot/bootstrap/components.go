package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// startFunc starts one component.
type startFunc struct {
	name  string
	async bool
	run   func(context.Context) error
}

// stopPatience bounds the wait for background components once they were told to stop.
const stopPatience = 15 * time.Second

// components are what the server runs, in the order of starting.
type components struct {
	logger *slog.Logger
	list   []startFunc
}

// start registers a component that has started when run returns.
func (c *components) start(name string, run func(context.Context) error) {
	c.list = append(c.list, startFunc{name, false, run})
}

// background registers a component that runs until its context ends. If it returns before, or panics, the server stops.
func (c *components) background(name string, run func(context.Context) error) {
	c.list = append(c.list, startFunc{name, true, run})
}

// run starts all components in order and waits until ctx ends or one of them fails, which is the error. Before the components' own context ends, stop is
// called; background components have returned when run returns, but for one that does not heed its context for long.
func (c *components) run(ctx context.Context, stop func()) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// A start that waits, for a source to sync, must outlast neither the stop nor the failure of another component.
	starting, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	var wg sync.WaitGroup
	for _, s := range c.list {
		if starting.Err() != nil {
			break
		}
		if !s.async {
			if err := s.guarded(starting); err != nil {
				broken(err) // of several causes the first stays
			}
			continue
		}
		wg.Add(1)
		safe.Go(c.logger, s.name, func() {
			defer wg.Done()
			err := s.guarded(inner)
			if err == nil && inner.Err() == nil {
				err = fmt.Errorf("%s: ended by itself", s.name)
			}
			if err != nil {
				broken(err)
			}
		})
	}
	<-starting.Done()
	stop()
	cancel()
	ended := make(chan struct{})
	safe.Go(c.logger, "components stop", func() {
		defer close(ended)
		wg.Wait()
	})
	select {
	case <-ended:
	case <-time.After(stopPatience):
		c.logger.Error("not everything has stopped: it is left behind", "after", stopPatience)
	}
	if ctx.Err() != nil && errors.Is(context.Cause(starting), ctx.Err()) {
		return nil // asked to stop
	}
	return context.Cause(starting)
}

// guarded runs the component and names it in its error, or its panic.
func (s startFunc) guarded(ctx context.Context) error {
	var err error
	if p := safe.Do(s.name, func() { err = s.run(ctx) }); p != nil {
		return p
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}
