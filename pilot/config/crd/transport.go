package crd

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// How soon a connection that leads nowhere is given up: a watch is silent for minutes while all is well, so silence
// proves nothing.
const (
	dialTimeout  = 4 * time.Second
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second
)

// newHTTP makes the one client that all streams of a source share. It is not client-go's: that one notices a connection
// that leads nowhere after 45 seconds, and only the environment could change it.
func newHTTP(c *rest.Config) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(c)
	if err != nil {
		return nil, err
	}
	proxy := c.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingInterval}).DialContext
	}
	transport := &http.Transport{
		Proxy: proxy, DialContext: gather(dial), TLSClientConfig: tls, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		DisableCompression: c.DisableCompression,
	}
	wrapped, err := rest.HTTPWrappersForConfig(c, &brake{next: transport, limit: rate.NewLimiter(brakeRate, brakeBurst)})
	if err != nil {
		return nil, fmt.Errorf("set up credentials: %w", err)
	}
	return &http.Client{
		Transport: &closer{wrapped, transport}, Timeout: c.Timeout,
		// An API server of another cluster leads nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// closer passes on CloseIdleConnections, which wrappers hide.
type closer struct {
	http.RoundTripper
	idle *http.Transport
}

// CloseIdleConnections is what http.Client looks for.
func (c *closer) CloseIdleConnections() { c.idle.CloseIdleConnections() }

// What an API server in trouble is asked at most, by all streams and their retries together.
const (
	brakeRate  = 8 // a second
	brakeBurst = 2
	brakeHold  = 15 * time.Second // after the last failure
)

// brake slows all requests down for a while after one failed.
type brake struct {
	next   http.RoundTripper
	limit  *rate.Limiter
	failed atomic.Int64 // when a request last failed, in Unix nanoseconds
}

// answerMax bounds an answer that is no stream, so that one bad API server cannot take the memory of all.
const answerMax = 256 << 20

// RoundTrip waits for its turn, if the server is in trouble.
func (b *brake) RoundTrip(r *http.Request) (*http.Response, error) {
	if last := b.failed.Load(); last != 0 && time.Now().UnixNano()-last < int64(brakeHold) {
		if err := b.limit.Wait(r.Context()); err != nil {
			return nil, fmt.Errorf("wait for an API server in trouble: %w", err)
		}
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil && r.Context().Err() == nil || err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500) {
		b.failed.Store(time.Now().UnixNano())
	}
	if err == nil && !r.URL.Query().Has("watch") {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{&boundedReader{resp.Body, answerMax}, resp.Body}
	}
	return resp, err
}
