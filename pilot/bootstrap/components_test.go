package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
			c := &components{logger: slog.New(slog.DiscardHandler)}
			c.start("one", step("one", false))
			c.start("two", step("two", false))
			c.background("background", step("background", true))
			if test.cancelled {
				c.start("cancel", func(context.Context) error { cancel(); return nil })
			}
			err := c.run(ctx, func() { events <- "stop" })
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

// A start that waits, as for a source that never syncs, ends when the server is told to stop.
func TestComponentsStopWhileStarting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &components{logger: slog.New(slog.DiscardHandler)}
	c.start("waiting", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	c.start("never", func(context.Context) error {
		t.Error("started after the stop")
		return nil
	})
	if err := c.run(ctx, func() {}); err != nil {
		t.Errorf("got %v", err)
	}
}

// A source that fails while the server waits for it to sync is the error, not a wait without end.
func TestComponentFailsWhileAnotherWaits(t *testing.T) {
	c := &components{logger: slog.New(slog.DiscardHandler)}
	c.background("source", func(context.Context) error { return errors.New("broken") })
	c.start("waiting", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := c.run(t.Context(), func() {}); err == nil || err.Error() != "source: broken" {
		t.Errorf("got %v", err)
	}
}
