package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// Proxy stands in front of a cluster.
type Proxy struct {
	address string
	server  *http.Server
	wire    *wire
	forward *httputil.ReverseProxy
	served  chan struct{}
	close   context.CancelFunc

	mu          sync.Mutex
	rules       []*active
	requests    []*Request
	watches     map[*watch]struct{}
	stopCutting context.CancelFunc
}

type watch struct {
	request Request
	cut     context.CancelFunc
}

// Start starts a proxy in front of the cluster, on a free port of the host. The default host is 127.0.0.1. At first it
// only forwards and records requests.
func Start(ctx context.Context, c *cluster.Cluster, host string) (*Proxy, error) {
	if host == "" {
		host = "127.0.0.1"
	}
	cert, err := c.Serving(host)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(c.Admin().Server)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA())
	upstream := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	lifetime, stop := context.WithCancel(context.Background())
	p := &Proxy{
		address: listener.Addr().String(), wire: newWire(listener), served: make(chan struct{}), watches: map[*watch]struct{}{},
		stopCutting: func() {},
	}
	p.close = func() { stop(); upstream.CloseIdleConnections() }
	quiet := log.New(io.Discard, "", 0) // errors here are intended
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     upstream,
		FlushInterval: -1,
		ErrorLog:      quiet,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the client sees a broken connection, as without the proxy
		},
	}
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.handle),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}},
		ErrorLog:          quiet,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return lifetime },
	}
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(p.wire, "", "")
	}()
	return p, nil
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.CutWatchesEvery(0)
	p.close()
	p.wire.set(refused)
	_ = p.server.Close()
	<-p.served
}

// Access returns the same access through the proxy.
func (p *Proxy) Access(a cluster.Access) cluster.Access {
	a.Server = "https://" + p.address
	return a
}

// Set replaces the rules. Without rules all requests pass.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
	for _, r := range rules {
		p.rules = append(p.rules, &active{Rule: r})
	}
}

// Refuse resets all current and future connections until Heal.
func (p *Proxy) Refuse() { p.wire.set(refused) }

// Lose keeps connections open but passes no bytes until Heal.
func (p *Proxy) Lose() { p.wire.set(lost) }

// Heal ends Refuse or Lose. Delayed bytes then arrive.
func (p *Proxy) Heal() { p.wire.set(up) }

// CutWatches breaks the matching watches, and returns their number.
func (p *Proxy) CutWatches(m Match) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.watches {
		if m.Matches(w.request) {
			w.cut()
			n++
		}
	}
	return n
}

// CutWatchesEvery breaks all watches repeatedly. 0 ends that.
func (p *Proxy) CutWatchesEvery(every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopCutting()
	p.stopCutting = func() {}
	if every == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stopCutting = stop
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.CutWatches(Match{})
			}
		}
	}()
}

// Requests returns the matching requests since the start or Forget, in order.
func (p *Proxy) Requests(m Match) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var matching []Request
	for _, r := range p.requests {
		if m.Matches(*r) {
			matching = append(matching, *r)
		}
	}
	return matching
}

// Count returns the number of matching requests.
func (p *Proxy) Count(m Match) int { return len(p.Requests(m)) }

// Watches returns the number of matching watches that are open.
func (p *Proxy) Watches(m Match) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.watches {
		if m.Matches(w.request) {
			n++
		}
	}
	return n
}

// Forget forgets the requests so far.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = nil
}

func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	request := parse(r)
	delay, answer, seen := p.decide(request)
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	if request.Verb == "watch" {
		defer p.track(&watch{request: request, cut: cut})()
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
	noted := &noting{ResponseWriter: w, note: func(code int) { p.note(seen, code) }}
	if answer != nil {
		refuse(noted, *answer)
		return
	}
	p.forward.ServeHTTP(noted, r.WithContext(ctx))
}

// decide records the request and returns what to do with it.
func (p *Proxy) decide(r Request) (delay time.Duration, answer *Rule, seen *Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, &r)
	for _, rule := range p.rules {
		if !rule.hits(r) {
			continue
		}
		delay += rule.Delay
		if answer == nil && rule.Status != 0 {
			answer = &rule.Rule
		}
	}
	return delay, answer, &r
}

func (p *Proxy) note(r *Request, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Code = code
}

// track lists an open watch until the returned function is called.
func (p *Proxy) track(w *watch) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches[w] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, w)
	}
}

// refuse answers as kube-apiserver would.
func refuse(w http.ResponseWriter, rule Rule) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(rule.Status), Message: "a fault that a test asked for", Reason: reason(rule.Status),
	}
	w.Header().Set("Content-Type", "application/json")
	if rule.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(rule.RetryAfter.Seconds()))))
	}
	w.WriteHeader(rule.Status)
	_ = json.NewEncoder(w).Encode(status)
}

func reason(code int) metav1.StatusReason {
	switch code {
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusGone:
		return metav1.StatusReasonExpired
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	default:
		return metav1.StatusReasonInternalError
	}
}

// noting records the status of an answer.
type noting struct {
	http.ResponseWriter
	note func(int)
	once sync.Once
}

func (n *noting) WriteHeader(code int) {
	n.once.Do(func() { n.note(code) })
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap allows flushing.
func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }
