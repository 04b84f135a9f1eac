package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
)

// largeBody is the size in bytes from which a body is large. Large bodies use memory of their own, so that they do not
// delay small ones.
const largeBody = 256 << 10

// A slow body loses its memory when others wait for it. It is slow if, after patience, it has arrived at fewer bytes a
// second than slowestBody.
const (
	patience    = 100 * time.Millisecond
	slowestBody = 2 << 20
)

// Gate bounds the total cost of a server's webhooks. The webhooks serve API servers, each of which needs only one
// address. So one API server may use most of a bound, and all other addresses together leave room for it. Safe for
// concurrent use.
type Gate struct {
	limits   limits.Limits
	servers  func() []netip.Addr
	all      *bodies
	reviewed *pool // bytes of the requests under review

	// sources has the bodies of each address. If an API server is known, others has the bodies of all other addresses.
	sources, others *quota.Table[netip.Addr, *bodies]

	// Slots for reviews. most is used while no API server is known: each address may have most of it. few is for
	// addresses other than API servers': each may have a tenth, and together they leave room. reviews is for all; the
	// other addresses take turns in it as if they were one API server.
	most, few *quota.Slots[netip.Addr]
	reviews   *quota.Slots[caller]
}

// caller is a party in the turns of reviews: one API server, or all other addresses together.
type caller struct {
	server  netip.Addr
	another bool
}

// NewGate returns an unused Gate. servers returns the known addresses of API servers; it may be nil. While none is
// known, every address may be an API server's.
func NewGate(l limits.Limits, servers func() []netip.Addr) *Gate {
	if servers == nil {
		servers = func() []netip.Addr { return nil }
	}
	left := l.Reviews - l.Reviews/4
	return &Gate{
		limits: l, servers: servers, all: newBodies(l.WebhookBodies, 2*l.WebhookBody), reviewed: newPool(l.ReviewedBytes),
		sources: quota.NewTable[netip.Addr](func() *bodies { return newBodies(max(l.WebhookBodies/4, largeBody), l.WebhookBody) }),
		others:  quota.NewTable[netip.Addr](func() *bodies { return newBodies(max(l.WebhookBodies/10, largeBody), l.WebhookBody) }),
		most:    quota.NewSlots[netip.Addr](l.Reviews, left),
		few:     quota.NewSlots[netip.Addr](left, quota.Share(l.Reviews)),
		reviews: quota.NewSlots[caller](l.Reviews, l.Reviews),
	}
}

// bodies are the pools of bytes for the bodies of some requests.
type bodies struct{ small, large *pool }

func newBodies(small, large int64) *bodies { return &bodies{newPool(small), newPool(large)} }

// of returns the pool for a body of a size.
func (b *bodies) of(size int64) *pool {
	if size > largeBody {
		return b.large
	}
	return b.small
}

// source is the origin of a request, with the bounds of its address.
type source struct {
	address netip.Addr
	server  bool                     // an API server
	bodies  *bodies                  // a quarter or a tenth of the memory for bodies, and WebhookBody for large ones
	reviews *quota.Slots[netip.Addr] // nil for API servers
}

// source returns the origin of a request. The caller must call leave when the request is done.
func (g *Gate) source(r *http.Request) (s source, leave func()) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address stands for all unparsed ones
	s.address = from.Addr().Unmap()
	servers := g.servers()
	s.server = s.address.IsLoopback() || slices.Contains(servers, s.address)
	switch {
	case s.server:
		s.bodies, leave = g.sources.Hold(s.address)
	case len(servers) == 0:
		s.reviews = g.most
		s.bodies, leave = g.sources.Hold(s.address)
	default:
		s.reviews = g.few
		s.bodies, leave = g.others.Hold(s.address)
	}
	return s, leave
}

// pool is an amount that requests take parts of. Requests that find too little wait in order.
type pool struct {
	free    *semaphore.Weighted
	waiting atomic.Int64
}

func newPool(n int64) *pool { return &pool{free: semaphore.NewWeighted(n)} }

// take takes n, and reports false if there is too little until ctx ends.
func (p *pool) take(ctx context.Context, n int64) bool {
	if p.free.TryAcquire(n) {
		return true
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	return p.free.Acquire(ctx, n) == nil
}

// takeBoth takes n from a source's pool and then from the common one. The caller must call release. It reports false as
// take does, and then holds nothing.
func takeBoth(ctx context.Context, own, all *pool, n int64) (release func(), ok bool) {
	if !own.take(ctx, n) {
		return nil, false
	}
	if !all.take(ctx, n) {
		own.free.Release(n)
		return nil, false
	}
	return func() {
		all.free.Release(n)
		own.free.Release(n)
	}, true
}

// arriving is a body that tracks how many bytes it has received.
type arriving struct {
	io.ReadCloser
	bytes atomic.Int64
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.bytes.Add(int64(n))
	return n, err
}

// watch calls cut at most once, when the body is slow and other requests wait for any of the pools. After stop has
// returned, cut is not running and will not run.
func (a *arriving) watch(cut func(), pools ...*pool) (stop func()) {
	var mu sync.Mutex
	start := time.Now()
	var timer *time.Timer
	over := false
	var look func()
	look = func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
		case float64(a.bytes.Load()) < time.Since(start).Seconds()*slowestBody &&
			slices.ContainsFunc(pools, func(p *pool) bool { return p.waiting.Load() > 0 }):
			cut()
		default:
			timer = time.AfterFunc(patience, look)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(patience, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// refusal is the HTTP status of a request that is not reviewed.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// read returns the body of a request, whose memory release frees. A body that arrives slowly is refused if other
// requests wait for its memory. The error is a refusal.
func (g *Gate) read(w http.ResponseWriter, r *http.Request, own *bodies) (text []byte, release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.WebhookRead)
	defer cancel()
	deadline, _ := ctx.Deadline()
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(deadline) // a server without deadlines has a bound of its own
	size := r.ContentLength
	switch media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case size == 0:
		return nil, nil, refuse(http.StatusBadRequest, "no body found")
	case err != nil || media != "application/json":
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "invalid Content-Type, want `application/json`")
	case r.Header.Get("Content-Encoding") != "":
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "a body must not be encoded: leave out Content-Encoding")
	case size > g.limits.WebhookBody:
		_, _ = io.CopyN(io.Discard, r.Body, g.limits.WebhookBody) // a client that is still sending reads no answer
		return nil, nil, refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", g.limits.WebhookBody)
	case size < 0: // the size is unknown
		size = g.limits.WebhookBody
	}
	release, ok := takeBoth(ctx, own.of(size), g.all.of(size), size)
	if !ok {
		return nil, nil, refuse(http.StatusTooManyRequests, "too many bodies are read: try again")
	}
	slow := false
	body := &arriving{ReadCloser: r.Body}
	stop := body.watch(func() {
		slow = true
		_ = conn.SetReadDeadline(time.Now())
	}, own.of(size), g.all.of(size))
	into := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // what release gives back
	_, err = into.ReadFrom(http.MaxBytesReader(w, body, g.limits.WebhookBody))
	text = into.Bytes()
	stop()
	if err == nil && len(text) > 0 {
		return text, release, nil
	}
	release()
	var large *http.MaxBytesError
	switch {
	case err == nil:
		err = refuse(http.StatusBadRequest, "no body found")
	case errors.As(err, &large):
		err = refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", g.limits.WebhookBody)
	case slow:
		err = refuse(http.StatusRequestTimeout, "the body arrives too slowly while others wait for its memory: try again")
	case !time.Now().Before(deadline):
		err = refuse(http.StatusRequestTimeout, "the body did not arrive within %s", g.limits.WebhookRead)
	default:
		err = refuse(http.StatusBadRequest, "could not read the body: %v", err)
	}
	return nil, nil, err
}

// enter waits until some bytes of a source may be reviewed. The error is a refusal.
func (g *Gate) enter(ctx context.Context, from source, size int) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.limits.ReviewWait)
	defer cancel()
	var taken []func()
	leave = func() {
		for _, release := range slices.Backward(taken) {
			release()
		}
	}
	take := func(release func(), err error) bool {
		if err == nil {
			taken = append(taken, release)
		}
		return err == nil
	}
	turn := caller{server: from.address}
	if !from.server {
		turn = caller{another: true}
	}
	weight := min(int64(size), g.limits.ReviewedBytes)
	if from.reviews != nil && !take(from.reviews.Take(ctx, from.address)) || !take(g.reviews.Take(ctx, turn)) ||
		!g.reviewed.take(ctx, weight) {
		leave()
		return nil, refuse(http.StatusTooManyRequests, "too many reviews at once: try again")
	}
	taken = append(taken, func() { g.reviewed.free.Release(weight) })
	return leave, nil
}
