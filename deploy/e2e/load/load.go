package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what to send.
type Options struct {
	// Rate is in requests a second.
	Rate int
	// Timeout bounds one request.
	Timeout time.Duration
	// Send sends one request and returns who answered. It is called concurrently.
	Send func(ctx context.Context) (from string, err error)
	// Overdue, if not nil, is called once, as soon as a request has waited for half of Timeout: its answer can still be
	// looked for.
	Overdue func()
}

// Report is what came of the requests so far.
type Report struct {
	Answered int
	Failed   int
	// TimedOut are those of the failed that waited for all of Timeout.
	TimedOut int
	From     map[string]int
	// Errors counts by message.
	Errors  map[string]int
	Slowest time.Duration
	// HeldUp is the longest time that this program, when it was to send, was kept from running.
	HeldUp time.Duration

	timeout time.Duration
}

// Run is a load under way.
type Run struct {
	o      Options
	cancel context.CancelFunc
	busy   sync.WaitGroup

	mu     sync.Mutex
	report Report
}

// Start begins to send. The requests go on until Stop, not until the context ends, which only cuts them short.
func Start(ctx context.Context, o Options) *Run {
	pace, cancel := context.WithCancel(ctx)
	if o.Overdue != nil {
		o.Overdue = sync.OnceFunc(o.Overdue)
	}
	r := &Run{o: o, cancel: cancel, report: Report{From: map[string]int{}, Errors: map[string]int{}, timeout: o.Timeout}}
	r.busy.Go(func() {
		every := time.Second / time.Duration(o.Rate)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-pace.Done():
				return
			case <-tick.C:
				now := time.Now()
				r.heldUp(now.Sub(last) - every)
				last = now
				r.busy.Go(func() { r.one(ctx) })
			}
		}
	})
	return r
}

// Stop sends no more and waits for the answers that are due.
func (r *Run) Stop() Report {
	r.cancel()
	r.busy.Wait()
	return r.Report()
}

// Report returns the results so far.
func (r *Run) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.report
	c.From, c.Errors = maps.Clone(c.From), maps.Clone(c.Errors)
	return c
}

func (r *Run) heldUp(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.HeldUp = max(r.report.HeldUp, d)
}

func (r *Run) one(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if r.o.Overdue != nil {
		r.busy.Add(1)
		late := time.AfterFunc(r.o.Timeout/2, func() { defer r.busy.Done(); r.o.Overdue() })
		defer func() {
			if late.Stop() {
				r.busy.Done()
			}
		}()
	}
	began := time.Now()
	from, err := r.o.Send(ctx)
	took := time.Since(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Slowest = max(r.report.Slowest, took)
	if err != nil {
		r.report.Failed++
		if ctx.Err() != nil {
			r.report.TimedOut++
		}
		r.report.Errors[err.Error()]++
		return
	}
	r.report.Answered++
	r.report.From[from]++
}

// starved is the share of a request's timeout for which a program that only sends is not kept from running, unless a
// machine has far more to do than it can.
const starved = 4

// Err returns an error if requests failed. What timed out while the machine was starved proves nothing about whoever
// was to answer: then it is nil.
func (r Report) Err() error {
	if r.Failed == 0 || r.Failed == r.TimedOut && r.Starved() {
		return nil
	}
	return errors.New(r.String())
}

// Starved reports whether the machine had so much else to do that requests may have timed out for that alone.
func (r Report) Starved() bool { return r.HeldUp > r.timeout/starved }

// Since returns what came between two reports. Slowest and HeldUp are those of the newer one.
func (r Report) Since(from Report) Report {
	d := Report{
		Answered: r.Answered - from.Answered, Failed: r.Failed - from.Failed, TimedOut: r.TimedOut - from.TimedOut, Slowest: r.Slowest,
		HeldUp: r.HeldUp,
		From:   map[string]int{}, Errors: map[string]int{}, timeout: r.timeout,
	}
	less := func(into, now, then map[string]int) {
		for k, n := range now {
			if n > then[k] {
				into[k] = n - then[k]
			}
		}
	}
	less(d.From, r.From, from.From)
	less(d.Errors, r.Errors, from.Errors)
	return d
}

// String names the reasons of failure, most frequent first.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d answered, %d failed, slowest %s", r.Answered, r.Failed, r.Slowest.Round(time.Millisecond))
	if r.TimedOut > 0 {
		fmt.Fprintf(&b, "; the sender itself was kept from running for up to %s", r.HeldUp.Round(time.Millisecond))
		if r.Starved() {
			b.WriteString(": the machine is starved, timeouts prove nothing")
		}
	}
	reasons := slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int { return r.Errors[b] - r.Errors[a] })
	for _, e := range reasons {
		fmt.Fprintf(&b, "\n  %d x %s", r.Errors[e], e)
	}
	return b.String()
}
