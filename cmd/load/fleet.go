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

// Options describe the fleet.
type Options struct {
	// Address is the host and port of the control plane's ADS.
	Address string
	// Credentials secure the connections. Nil means plaintext.
	Credentials credentials.TransportCredentials
	// PerRPC are sent with each stream, such as a token. Optional.
	PerRPC  credentials.PerRPCCredentials
	Proxies int
	// Identity returns the identity of the proxy with a number.
	Identity func(i int) Identity
	// Minor is the minor version of Envoy that proxies report: 36 for 1.36, which does not support VHDS. The default is
	// 40.
	Minor uint32
	// StateOfTheWorld selects that protocol instead of delta.
	StateOfTheWorld bool
	// Rate is the number of proxies that connect per second. With 0 all connect at once.
	Rate float64
	// Retry is the longest pause before a proxy's second try. The pause doubles with each try. The default is 500 ms, as
	// in Envoy.
	Retry time.Duration
	// Observe is called with each encoded response on the goroutine of its proxy. The message must not be kept after the
	// call. Optional.
	Observe func(proxy int, message []byte)
	Logger  *slog.Logger
}

// Fleet is a number of connected proxies.
type Fleet struct {
	o      Options
	cancel context.CancelFunc
	all    sync.WaitGroup
	// proxies does not change after the start.
	proxies []*proxy
	names   interner

	counters     [types]struct{ responses, resources, bytes atomic.Int64 }
	pushes       [types]pushes
	refused, cut atomic.Int64
	live         atomic.Int64 // open streams that have subscribed to everything
	track        atomic.Pointer[Track]

	mu        sync.Mutex
	times     []time.Duration
	lastError error         // error of the last stream that ended
	allSynced chan struct{} // closed when all proxies are synced
}

// Start connects the proxies. They run until Stop or until ctx ends.
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
		allSynced: make(chan struct{})}
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
			if o.Rate > 0 && i > 0 { // since the start, because each pause takes a little too long
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

// Size returns the number of proxies.
func (f *Fleet) Size() int { return f.o.Proxies }

// Wait waits until every proxy has received a full configuration: all clusters with their assignments, and all
// listeners with their routes.
func (f *Fleet) Wait(ctx context.Context) error {
	select {
	case <-f.allSynced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d proxies have a full configuration: %w", len(f.SyncTimes()), f.o.Proxies, ctx.Err())
	}
}

// SyncTimes returns how long each synced proxy took from its first try to a full configuration, ascending.
func (f *Fleet) SyncTimes() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.times)
	slices.Sort(out)
	return out
}

// Reconnect makes every proxy drop its stream, connect again at once and name the resources that it holds. It returns
// when each proxy has subscribed to everything again.
func (f *Fleet) Reconnect(ctx context.Context) error { return f.again(ctx, f.proxies, false) }

// Stall makes the chosen proxies connect again, subscribe to everything as if they held nothing, and read no response.
// A proxy whose stream the server ends connects again.
func (f *Fleet) Stall(ctx context.Context, chosen func(proxy int) bool) error {
	var some []*proxy
	for i, p := range f.proxies {
		if chosen(i) {
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

// Live returns the number of open streams that have subscribed to everything. A stream that the control plane refuses
// is included until it ends.
func (f *Fleet) Live() int { return int(f.live.Load()) }

// BytesOf returns the size of all responses that a proxy received.
func (f *Fleet) BytesOf(proxy int) int64 { return f.proxies[proxy].bytes.Load() }

// Count is what the fleet received of one type.
type Count struct{ Responses, Resources, Bytes int64 }

// Counters hold what a fleet received by type, how many streams ended or were refused, and how many stalled streams the
// server cut.
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

// Since returns the difference to an earlier count.
func (c Counters) Since(before Counters) Counters {
	c.Refused, c.Cut = c.Refused-before.Refused, c.Cut-before.Cut
	for t, b := range before.Types {
		n := &c.Types[t]
		n.Responses, n.Resources, n.Bytes = n.Responses-b.Responses, n.Resources-b.Resources, n.Bytes-b.Bytes
	}
	return c
}

// Bytes returns the size of all responses.
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
		close(f.allSynced)
	}
}

func (f *Fleet) ended(p *proxy, err error) {
	n := &f.refused
	if p.stalled {
		n = &f.cut
	}
	n.Add(1)
	f.mu.Lock()
	f.lastError = err
	f.mu.Unlock()
	f.o.Logger.Debug("a stream ended", "proxy", p.index, "err", err)
}

// Failure returns the error of the last stream that ended, or nil.
func (f *Fleet) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastError
}

// NotGRPC reports whether a Failure says that the peer did not speak gRPC: its port is for HTTP, or only one side spoke
// TLS.
func NotGRPC(lastError error) bool {
	text := lastError.Error() // gRPC reports this only in the text
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
