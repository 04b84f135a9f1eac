package load

import (
	"context"
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
	// Send sends one request and tells who answered. It is called concurrently.
	Send func(ctx context.Context) (from string, err error)
	// Overdue, if not nil, is called once, as soon as a request has waited for half of Timeout: its answer can still be looked for.
	Overdue func()
}

// Report is what came of the requests so far.
type Report struct {
	Answered int
	Failed   int
	From     map[string]int
	// Errors counts by message.
	Errors  map[string]int
	Slowest time.Duration
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
	r := &Run{o: o, cancel: cancel, report: Report{From: map[string]int{}, Errors: map[string]int{}}}
	r.busy.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(o.Rate))
		defer tick.Stop()
		for {
			select {
			case <-pace.Done():
				return
			case <-tick.C:
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

// Report tells what came so far.
func (r *Run) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.report
	c.From, c.Errors = maps.Clone(c.From), maps.Clone(c.Errors)
	return c
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
		r.report.Errors[err.Error()]++
		return
	}
	r.report.Answered++
	r.report.From[from]++
}

// Since gives what came between two reports, from's Slowest aside.
func (r Report) Since(from Report) Report {
	d := Report{Answered: r.Answered - from.Answered, Failed: r.Failed - from.Failed, Slowest: r.Slowest, From: map[string]int{}, Errors: map[string]int{}}
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
	reasons := slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int { return r.Errors[b] - r.Errors[a] })
	for _, e := range reasons {
		fmt.Fprintf(&b, "\n  %d x %s", r.Errors[e], e)
	}
	return b.String()
}
