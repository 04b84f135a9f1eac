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

// Timeouts of broken connections. Silence does not prove that a connection is broken, because a healthy watch may be
// silent for minutes.
const (
	dialTimeout  = 4 * time.Second
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second
)

// newHTTP returns the client of all streams of a source. client-go's own would notice a broken connection only after 45
// seconds, and only the environment could change that.
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
		Proxy: proxy, DialContext: gather(dial), TLSClientConfig: tls, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 8,
		ForceAttemptHTTP2:   true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		DisableCompression: c.DisableCompression,
	}
	wrapped, err := rest.HTTPWrappersForConfig(c, &brake{next: transport, limit: rate.NewLimiter(brakeRate, brakeBurst)})
	if err != nil {
		return nil, fmt.Errorf("set up credentials: %w", err)
	}
	return &http.Client{
		Transport: &closer{wrapped, transport}, Timeout: c.Timeout,
		// The API server of another cluster has no reason to redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// closer forwards CloseIdleConnections, which wrappers hide.
type closer struct {
	http.RoundTripper
	idle *http.Transport
}

// CloseIdleConnections is called by http.Client.
func (c *closer) CloseIdleConnections() { c.idle.CloseIdleConnections() }

// Limits of all requests to an API server after a failure, including retries.
const (
	brakeRate  = 8                // a second
	brakeBurst = 2                // per second
	brakeHold  = 15 * time.Second // after the last failure
)

// brake limits the rate of all requests for a while after one failed.
type brake struct {
	next   http.RoundTripper
	limit  *rate.Limiter
	failed atomic.Int64 // time of the last failure in Unix nanoseconds
}

// answerMax bounds a response other than a stream, so that a faulty API server cannot exhaust memory.
const answerMax = 256 << 20

// RoundTrip waits for the rate limit if a request has failed recently.
func (b *brake) RoundTrip(r *http.Request) (*http.Response, error) {
	if last := b.failed.Load(); last != 0 && time.Now().UnixNano()-last < int64(brakeHold) {
		if err := b.limit.Wait(r.Context()); err != nil {
			return nil, fmt.Errorf("wait to retry an API server that failed: %w", err)
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
