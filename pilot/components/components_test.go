package components

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestComponents(t *testing.T) {
	for name, test := range map[string]struct {
		cancelled bool
		fail      string // the component that fails
		ends      string // the component that returns too soon
		panics    string
		log       string // what happened, in order
		err       string
	}{
		"stopped":          {cancelled: true, log: "one two stop background"},
		"sync failure":     {fail: "two", log: "one stop", err: "two: broken"},
		"async failure":    {fail: "background", log: "one two stop", err: "background: broken"},
		"async end":        {ends: "background", log: "one two stop", err: "background: ended by itself"},
		"a panic in sync":  {panics: "one", log: "stop", err: "panic in one: oh"},
		"a panic in async": {panics: "background", log: "one two stop", err: "panic in background: oh"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			events := make(chan string, 10)
			step := func(name string, wait bool) func(context.Context) error {
				return func(ctx context.Context) error {
					switch name {
					case test.fail:
						return errors.New("broken")
					case test.panics:
						panic("oh")
					case test.ends:
						return nil
					}
					if wait {
						<-ctx.Done()
					}
					events <- name
					return nil
				}
			}
			c := &List{Logger: slog.New(slog.DiscardHandler), Shutdown: time.Minute}
			c.Start("one", step("one", false))
			c.Start("two", step("two", false))
			c.Background("background", step("background", true))
			if test.cancelled {
				c.Start("cancel", func(context.Context) error { cancel(); return nil })
			}
			err := c.Run(ctx, func() {}, func(context.Context) { events <- "stop" })
			close(events)
			if text := strings.Join(slices.Collect(all(events)), " "); text != test.log {
				t.Errorf("got %q, want %q", text, test.log)
			}
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("got error %v, want %q", err, test.err)
			}
		})
	}
}

func all(c <-chan string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for s := range c {
			if !yield(s) {
				return
			}
		}
	}
}

// A start that waits, as for a source that never syncs, ends when the server stops.
func TestComponentsStopWhileStarting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &List{Logger: slog.New(slog.DiscardHandler), Shutdown: time.Minute}
	c.Start("waiting", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	c.Start("never", func(context.Context) error {
		t.Error("started after the stop")
		return nil
	})
	if err := c.Run(ctx, func() {}, func(context.Context) {}); err != nil {
		t.Errorf("got %v", err)
	}
}

// A source that fails while the server waits for it to sync is the error, not a wait without end.
func TestComponentFailsWhileAnotherWaits(t *testing.T) {
	c := &List{Logger: slog.New(slog.DiscardHandler), Shutdown: time.Minute}
	c.Background("source", func(context.Context) error { return errors.New("broken") })
	c.Start("waiting", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := c.Run(t.Context(), func() {}, func(context.Context) {}); err == nil || err.Error() != "source: broken" {
		t.Errorf("got %v", err)
	}
}

// What does not end does not keep the server from ending, be it a component or a part of the stop. The error names it,
// beside the error for which all ended.
func TestComponentsThatDoNotEnd(t *testing.T) {
	for name, test := range map[string]struct {
		component, stop bool // what does not end
		fails           bool
		err             string
	}{
		"all end":     {},
		"a component": {component: true, err: "not all has ended within --shutdownDuration, 10s: left behind: stuck"},
		"the stop":    {stop: true, err: "not all has ended within --shutdownDuration, 10s: left behind: streams"},
		"both": {
			component: true, stop: true, err: "not all has ended within --shutdownDuration, 10s: left behind: streams, stuck",
		},
		"both, after a failure": {
			component: true, stop: true, fails: true,
			err: "broken: oh\nnot all has ended within --shutdownDuration, 10s: left behind: streams, stuck",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				release, began := make(chan struct{}), time.Now()
				defer close(release)
				c := &List{Logger: slog.New(slog.DiscardHandler), Shutdown: 10 * time.Second}
				c.Background("stuck", func(ctx context.Context) error {
					if <-ctx.Done(); test.component {
						<-release
					}
					return nil
				})
				c.Background("heeds its context", func(ctx context.Context) error { <-ctx.Done(); return nil })
				c.Start("broken", func(context.Context) error {
					synctest.Wait() // all have started
					if test.fails {
						return errors.New("oh")
					}
					cancel()
					return nil
				})
				text := ""
				if err := c.Run(ctx, func() {}, func(context.Context) {
					c.Track("streams", func() {
						if test.stop {
							<-release
						}
					})
				}); err != nil {
					text = err.Error()
				}
				if text != test.err {
					t.Errorf("got error %q, want %q", text, test.err)
				}
				if took := time.Since(began); took > c.Shutdown+stopGrace {
					t.Errorf("the stop took %v", took)
				}
			})
		})
	}
}
