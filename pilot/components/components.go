package components

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Part is a part of the server that has findings.
type Part interface {
	// Findings returns the current findings about what the part reads and writes. It must be safe for concurrent use.
	Findings() []diag.Diagnostic
}

// Component is a Part that runs as long as the server. A Component that is also an Observer is told of each commit.
type Component interface {
	Part
	Name() string
	// Run runs until ctx ends. If it returns before, the server stops.
	Run(ctx context.Context) error
}

// Observer is told of each commit, in the order of registration, before the snapshot is published. All calls come from
// one goroutine, which an Observer must not block.
type Observer interface {
	Committed(batch []kinds.Change)
}

// startFunc starts one component.
type startFunc struct {
	name  string
	async bool
	run   func(context.Context) error
}

// stopGrace is how long components may take to end after their contexts were canceled at the end of a shutdown.
const stopGrace = 2 * time.Second

// List has the components of the server, in the order of starting.
type List struct {
	Logger   *slog.Logger
	Shutdown time.Duration // time limit of a shutdown

	list     []startFunc
	sources  []Part
	watching []Observer

	mu      sync.Mutex
	running []string // names of the running components
}

// Start registers a step of the start, which ends when run returns.
func (c *List) Start(name string, run func(context.Context) error) {
	c.list = append(c.list, startFunc{name, false, run})
}

// Background registers a function that runs until its context ends. If it returns before, or panics, the server stops.
func (c *List) Background(name string, run func(context.Context) error) {
	c.list = append(c.list, startFunc{name, true, run})
}

// Add registers a Component, which runs in the background.
func (c *List) Add(part Component) {
	c.Background(part.Name(), part.Run)
	c.Join(part)
}

// Join registers a part that runs elsewhere, for its findings and for commits.
func (c *List) Join(part Part) {
	c.sources = append(c.sources, part)
	if o, ok := part.(Observer); ok {
		c.watching = append(c.watching, o)
	}
}

// Observe registers an Observer that is not a Part.
func (c *List) Observe(o Observer) { c.watching = append(c.watching, o) }

// Parts returns all parts, in the order of registration.
func (c *List) Parts() []Part { return c.sources }

// Findings returns the findings of all parts.
func (c *List) Findings() (list []diag.Diagnostic) {
	for _, part := range c.sources {
		list = append(list, part.Findings()...)
	}
	return list
}

// Committed tells the Observers of a commit.
func (c *List) Committed(batch []kinds.Change) {
	for _, o := range c.watching {
		o.Committed(batch)
	}
}

// Run starts all components in order and waits until ctx ends or one of them fails. Then it calls leave, and stop with
// a context that ends after Shutdown, and cancels the contexts of background components. It returns the error of the
// component. If components are still running, the error names them.
func (c *List) Run(ctx context.Context, leave func(), stop func(context.Context)) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// A start that waits, for example for a source to sync, must end at a shutdown and when another component fails.
	starting, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	var wg sync.WaitGroup
	for _, s := range c.list {
		if starting.Err() != nil {
			break
		}
		if !s.async {
			if err := s.guarded(starting); err != nil {
				broken(err) // the first cause stays
			}
			continue
		}
		wg.Add(1)
		safe.Go(c.Logger, s.name, func() {
			defer wg.Done()
			var err error
			c.Track(s.name, func() { err = s.guarded(inner) })
			if err == nil && inner.Err() == nil {
				err = fmt.Errorf("%s: ended by itself", s.name)
			}
			if err != nil {
				broken(err)
			}
		})
	}
	<-starting.Done()
	err := context.Cause(starting)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // asked to stop
	}
	leave()
	limit, over := context.WithTimeout(context.WithoutCancel(ctx), c.Shutdown)
	defer over()
	ended := make(chan struct{})
	safe.Go(c.Logger, "components stop", func() {
		defer close(ended)
		stop(limit)
		cancel()
		wg.Wait()
	})
	select {
	case <-ended:
		return err
	case <-limit.Done():
	}
	cancel()
	select {
	case <-ended:
		return err
	case <-time.After(stopGrace):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(err, fmt.Errorf(
		"not all has ended within --shutdownDuration, %v: left behind: %s", c.Shutdown,
		strings.Join(slices.Sorted(slices.Values(c.running)), ", "),
	))
}

// Track runs fn. An error of Run names it if it is still running.
func (c *List) Track(name string, fn func()) {
	c.mu.Lock()
	c.running = append(c.running, name)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.running, name)
		c.running = slices.Delete(c.running, i, i+1)
	}()
	fn()
}

// guarded runs the component and adds its name to its error or panic.
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
