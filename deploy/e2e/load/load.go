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
	// Rate is the number of requests per second.
	Rate int
	// Timeout is the limit of one request.
	Timeout time.Duration
	// Send sends one request and returns the name of the server that answered. It is called concurrently.
	Send func(ctx context.Context) (from string, err error)
	// Overdue is called once, as soon as a request has waited for half of Timeout, so that its state can still be
	// examined. Optional.
	Overdue func()
}

// Report holds the results of the requests so far.
type Report struct {
	Answered int
	Failed   int
	// TimedOut is how many failed requests waited for the whole Timeout.
	TimedOut int
	From     map[string]int
	// Errors holds the number of failures by message.
	Errors  map[string]int
	Slowest time.Duration
	// HeldUp is the longest time that this program was kept from running when it had to send.
	HeldUp time.Duration

	timeout time.Duration
}

// Run is a running load.
type Run struct {
	o      Options
	cancel context.CancelFunc
	busy   sync.WaitGroup

	mu     sync.Mutex
	report Report
}

// Start begins to send. Requests are sent until Stop. The end of the context only cancels requests in flight.
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

// Stop stops sending, and waits for the requests in flight.
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

// starved is the share of Timeout: a program that is kept from running for longer runs on an overloaded machine.
const starved = 4

// Err returns an error if requests failed. It returns nil if the machine was starved, because timeouts then say nothing
// about the servers.
func (r Report) Err() error {
	if r.Failed == 0 || r.Failed == r.TimedOut && r.Starved() {
		return nil
	}
	return errors.New(r.String())
}

// Starved reports whether the machine was so busy that requests may have timed out for that reason.
func (r Report) Starved() bool { return r.HeldUp > r.timeout/starved }

// Since returns the difference between two reports. Slowest and HeldUp are those of the newer one.
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

// String lists the reasons of failures, the most frequent first.
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
