package load

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStarvedMachine keeps a machine busy for a while. Timeouts are then no failures, but refusals are.
func TestStarvedMachine(t *testing.T) {
	for _, c := range []struct {
		name             string
		heldUp           time.Duration
		failed, timedOut int
		wrong            bool
	}{
		{"all is well", 0, 0, 0, false},
		{"all is well on a starved machine", time.Minute, 0, 0, false},
		{"timeouts", 0, 2, 2, true},
		{"timeouts on a starved machine", time.Minute, 2, 2, false},
		{"a refusal on a starved machine", time.Minute, 2, 1, true},
	} {
		r := Report{Failed: c.failed, TimedOut: c.timedOut, HeldUp: c.heldUp, timeout: 10 * time.Second}
		if err := r.Err(); (err != nil) != c.wrong {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, overdue atomic.Int64
		r := Start(t.Context(),
			Options{Rate: 100, Timeout: time.Second, Overdue: func() { overdue.Add(1) }, Send: func(ctx context.Context) (string, error) {
				switch i := n.Add(1); {
				case i%10 == 0:
					return "", errors.New("reset")
				case i%25 == 1:
					<-ctx.Done()
					return "", ctx.Err()
				default:
					time.Sleep(30 * time.Millisecond)
					return "a", nil
				}
			}})
		time.Sleep(time.Second + 5*time.Millisecond)
		halfway := r.Report()
		if n := overdue.Load(); n != 1 {
			t.Errorf("told %d times that a request waits, want once", n)
		}
		time.Sleep(time.Second)
		got := r.Stop()
		want := Report{
			Answered: 172, Failed: 28, From: map[string]int{"a": 172},
			TimedOut: 8, timeout: time.Second, Errors: map[string]int{"reset": 20, context.DeadlineExceeded.Error(): 8}, Slowest: time.Second,
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Report{})); d != "" {
			t.Error(d)
		}
		since := got.Since(halfway)
		if since.Answered+halfway.Answered != got.Answered || since.Errors["reset"] != 10 {
			t.Errorf("since halfway: %s", since)
		}
		if s := got.String(); !strings.Contains(s,
			"172 answered, 28 failed, slowest 1s; the sender itself was kept from running for up to 0s\n  20 x reset\n  8 x context deadline") {
			t.Errorf("report reads %q", s)
		}
	})
}
