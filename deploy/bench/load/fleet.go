package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Options say what to simulate.
type Options struct {
	// Address is host and port of the control plane's ADS.
	Address string
	// Credentials are those of the connections; plaintext without them.
	Credentials credentials.TransportCredentials
	Proxies     int
	// Identity tells who a proxy is, by its number.
	Identity func(i int) Identity
	// StateOfTheWorld takes that protocol in place of delta.
	StateOfTheWorld bool
	// Rate is the number of proxies that connect in a second; all at once without it.
	Rate float64
	// Retry is the most that a proxy waits before its second try; it doubles with each. Envoy's 500 ms without it.
	Retry  time.Duration
	Logger *slog.Logger
}

// Fleet is a number of connected proxies.
type Fleet struct {
	o      Options
	cancel context.CancelFunc
	all    sync.WaitGroup

	counters [types]struct{ responses, resources, bytes atomic.Int64 }
	refused  atomic.Int64
	track    atomic.Pointer[Track]

	mu    sync.Mutex
	times []time.Duration
	full  chan struct{} // closed when all are synced
}

// Start connects the proxies, which go on until Stop or until ctx ends.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	if o.Retry == 0 {
		o.Retry = 500 * time.Millisecond
	}
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	if o.Proxies <= 0 {
		return nil, errors.New("a fleet has at least one proxy")
	}
	listed := extensions()
	proxies := make([]*proxy, o.Proxies)
	ctx, cancel := context.WithCancel(ctx)
	f := &Fleet{o: o, cancel: cancel, full: make(chan struct{})}
	for i := range proxies {
		node, err := o.Identity(i).node(listed)
		if err != nil {
			cancel()
			return nil, err
		}
		proxies[i] = &proxy{fleet: f, index: i, node: node}
	}
	f.all.Go(func() {
		for i, p := range proxies {
			if o.Rate > 0 && i > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(float64(time.Second) / o.Rate)):
				}
			}
			f.all.Go(func() { p.run(ctx) })
		}
	})
	return f, nil
}

// Stop disconnects all proxies and waits for them.
func (f *Fleet) Stop() {
	f.cancel()
	f.all.Wait()
}

// Wait waits until every proxy has had a full configuration: clusters with all their assignments, listeners with all their routes.
func (f *Fleet) Wait(ctx context.Context) error {
	select {
	case <-f.full:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d proxies have a full configuration: %w", len(f.SyncTimes()), f.o.Proxies, ctx.Err())
	}
}

// SyncTimes are how long it took the proxies that are done from their first try to a full configuration, ascending.
func (f *Fleet) SyncTimes() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.times)
	slices.Sort(out)
	return out
}

// Count is what was received of a type.
type Count struct{ Responses, Resources, Bytes int64 }

// Counters are what a fleet received, by type, and how often a stream ended or was not let in.
type Counters struct {
	Types   [types]Count
	Refused int64
}

// Counters gives the counts up to now.
func (f *Fleet) Counters() Counters {
	c := Counters{Refused: f.refused.Load()}
	for t := range f.counters {
		n := &f.counters[t]
		c.Types[t] = Count{Responses: n.responses.Load(), Resources: n.resources.Load(), Bytes: n.bytes.Load()}
	}
	return c
}

// Since is what has come since an earlier count.
func (c Counters) Since(before Counters) Counters {
	c.Refused -= before.Refused
	for t, b := range before.Types {
		n := &c.Types[t]
		n.Responses, n.Resources, n.Bytes = n.Responses-b.Responses, n.Resources-b.Resources, n.Bytes-b.Bytes
	}
	return c
}

// Bytes is the size of all responses.
func (c Counters) Bytes() (sum int64) {
	for _, n := range c.Types {
		sum += n.Bytes
	}
	return sum
}

func (f *Fleet) received(index int, r response, size int, at time.Time) {
	n := &f.counters[r.kind]
	n.responses.Add(1)
	n.resources.Add(int64(len(r.resources)))
	n.bytes.Add(int64(size))
	if t := f.track.Load(); t != nil && t.kind == r.kind {
		t.look(index, r, at)
	}
}

func (f *Fleet) synced(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = append(f.times, took)
	if len(f.times) == f.o.Proxies {
		close(f.full)
	}
}

func (f *Fleet) ended(index int, err error) {
	f.refused.Add(1)
	f.o.Logger.Debug("a stream ended", "proxy", index, "err", err)
}
