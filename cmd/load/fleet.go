package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Options are what to simulate.
type Options struct {
	// Address is host and port of the control plane's ADS.
	Address string
	// Credentials are those of the connections; plaintext without them.
	Credentials credentials.TransportCredentials
	// PerRPC are sent with each stream, a token for instance; none without it.
	PerRPC  credentials.PerRPCCredentials
	Proxies int
	// Identity returns who a proxy is, by its number.
	Identity func(i int) Identity
	// Minor is the version of Envoy that proxies claim to be, 36 for 1.36, which takes no virtual hosts by themselves;
	// 40 without it.
	Minor uint32
	// StateOfTheWorld takes that protocol in place of delta.
	StateOfTheWorld bool
	// Rate is the number of proxies that connect in a second; all at once without it.
	Rate float64
	// Retry is the most that a proxy waits before its second try; it doubles with each. Envoy's 500 ms without it.
	Retry time.Duration
	// Observe, if there is one, sees each response, whole and encoded, on the goroutine of its proxy. The message is
	// lent for the call.
	Observe func(proxy int, message []byte)
	Logger  *slog.Logger
}

// Fleet is a number of connected proxies.
type Fleet struct {
	o      Options
	cancel context.CancelFunc
	all    sync.WaitGroup
	// proxies never change after the start.
	proxies []*proxy
	names   interner

	counters     [types]struct{ responses, resources, bytes atomic.Int64 }
	pushes       [types]pushes
	refused, cut atomic.Int64
	live         atomic.Int64 // streams that were opened and have asked for everything
	track        atomic.Pointer[Track]

	mu      sync.Mutex
	times   []time.Duration
	failure error         // of the last stream that ended
	full    chan struct{} // closed when all are synced
}

// Start connects the proxies, which go on until Stop or until ctx ends.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	o.Minor = cmp.Or(o.Minor, 40)
	o.Retry = cmp.Or(o.Retry, 500*time.Millisecond)
	o.Credentials = cmp.Or(o.Credentials, insecure.NewCredentials())
	if o.Proxies <= 0 {
		return nil, errors.New("a fleet has at least one proxy")
	}
	listed := extensions()
	ctx, cancel := context.WithCancel(ctx)
	f := &Fleet{o: o, cancel: cancel, proxies: make([]*proxy, o.Proxies), names: interner{known: map[string]string{}},
		full: make(chan struct{})}
	for i := range f.proxies {
		node, err := o.Identity(i).node(listed, o.Minor)
		if err != nil {
			cancel()
			return nil, err
		}
		f.proxies[i] = newProxy(f, i, node)
	}
	f.all.Go(func() {
		begin := time.Now()
		for i, p := range f.proxies {
			if o.Rate > 0 && i > 0 { // counted from the start, for each pause takes a little longer than it should
				after := min(float64(i)/o.Rate*float64(time.Second), math.MaxInt64/2)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(begin.Add(time.Duration(after)))):
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

// Size is the number of proxies.
func (f *Fleet) Size() int { return f.o.Proxies }

// Wait waits until every proxy has had a full configuration: clusters with all their assignments, listeners with all
// their routes.
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

// Reconnect has every proxy drop its stream and connect at once, naming what it holds, and returns when each has asked
// for all that it had asked for before.
func (f *Fleet) Reconnect(ctx context.Context) error { return f.again(ctx, f.proxies, false) }

// Stall has each of some proxies connect anew, ask for everything as if it held nothing, and read no answer from then
// on. Whoever cuts it off gets it back.
func (f *Fleet) Stall(ctx context.Context, those func(proxy int) bool) error {
	var some []*proxy
	for i, p := range f.proxies {
		if those(i) {
			some = append(some, p)
		}
	}
	return f.again(ctx, some, true)
}

func (f *Fleet) again(ctx context.Context, some []*proxy, stall bool) error {
	done := make(chan struct{}, len(some))
	for _, p := range some {
		p.connectAgain(again{stall: stall, done: done})
	}
	for i := range some {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d proxies have connected again: %w", i, len(some), ctx.Err())
		}
	}
	return nil
}

// Live is the number of streams that are open and have asked for all that their proxy wants. One that a control plane
// refuses counts until its stream ends.
func (f *Fleet) Live() int { return int(f.live.Load()) }

// BytesOf is the size of all responses that a proxy received.
func (f *Fleet) BytesOf(proxy int) int64 { return f.proxies[proxy].bytes.Load() }

// Count is what was received of a type.
type Count struct{ Responses, Resources, Bytes int64 }

// Counters are what a fleet received, by type, how often a stream ended or was not let in, and how often one that reads
// nothing was cut off.
type Counters struct {
	Types        [types]Count
	Refused, Cut int64
}

// Counters returns the counts up to now.
func (f *Fleet) Counters() Counters {
	c := Counters{Refused: f.refused.Load(), Cut: f.cut.Load()}
	for t := range f.counters {
		n := &f.counters[t]
		c.Types[t] = Count{Responses: n.responses.Load(), Resources: n.resources.Load(), Bytes: n.bytes.Load()}
	}
	return c
}

// Since is what has come since an earlier count.
func (c Counters) Since(before Counters) Counters {
	c.Refused, c.Cut = c.Refused-before.Refused, c.Cut-before.Cut
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

func (f *Fleet) received(index int, r response, message []byte, at time.Time) {
	n := &f.counters[r.kind]
	n.responses.Add(1)
	n.resources.Add(int64(len(r.resources)))
	n.bytes.Add(int64(len(message)))
	if f.o.Observe != nil {
		f.o.Observe(index, message)
	}
	if t := f.track.Load(); t != nil && t.follows(r.kind) {
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

func (f *Fleet) ended(p *proxy, err error) {
	n := &f.refused
	if p.stalled {
		n = &f.cut
	}
	n.Add(1)
	f.mu.Lock()
	f.failure = err
	f.mu.Unlock()
	f.o.Logger.Debug("a stream ended", "proxy", p.index, "err", err)
}

// Failure returns why the last stream that ended did, or nil.
func (f *Fleet) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// NotGRPC reports whether the peer of a Failure did not speak gRPC: a port for HTTP, or for TLS where it was not
// spoken, or the other way round.
func NotGRPC(failure error) bool {
	text := failure.Error() // gRPC has no other sign of it
	return slices.ContainsFunc([]string{"server preface", "HTTP status code", "content-type",
		"first record does not look like a TLS handshake"}, func(sign string) bool {
		return strings.Contains(text, sign)
	})
}

// interner keeps one copy of each text that proxies hold.
type interner struct {
	mu    sync.RWMutex
	known map[string]string
}

func (n *interner) one(text []byte) string {
	n.mu.RLock()
	s, ok := n.known[string(text)]
	n.mu.RUnlock()
	if ok {
		return s
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok = n.known[string(text)]
	if !ok {
		s = string(text)
		n.known[s] = s
	}
	return s
}
