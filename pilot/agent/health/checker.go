package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Options of a Checker.
type Options struct {
	// Probe is the readinessProbe of a ProxyConfig.
	Probe *networkingv1.ReadinessProbe
	// Source is as of Probe.
	Source bool
	// Ready says when the proxy takes traffic. Before, nothing is asked. Nil: at once.
	Ready func(ctx context.Context) error
	// Report is called with the first result, and with each change. The message says why the application is not well.
	// It is called from Run, one call at a time.
	Report func(healthy bool, message string)
	Log    *slog.Logger
}

// Checker asks an application time and again.
type Checker struct {
	o                  Options
	check              func(context.Context) error
	delay, period      time.Duration
	successes, failure int
}

// New checks the probe. The error names the field that is wrong.
func New(o Options) (*Checker, error) {
	p := o.Probe
	if p == nil {
		return nil, errors.New("readinessProbe: missing")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	for name, n := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds,
		"periodSeconds": p.PeriodSeconds, "successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if n < 0 {
			return nil, fmt.Errorf("readinessProbe.%s: %d is negative", name, n)
		}
	}
	c := &Checker{
		o:         o,
		delay:     time.Duration(p.InitialDelaySeconds) * time.Second,
		period:    time.Duration(cmp.Or(p.PeriodSeconds, 10)) * time.Second,
		successes: int(cmp.Or(p.SuccessThreshold, 1)),
		failure:   int(cmp.Or(p.FailureThreshold, 3)),
	}
	q, err := question(p)
	if err != nil {
		return nil, fmt.Errorf("readinessProbe.%w", err)
	}
	q.Source = o.Source
	q.Timeout = time.Duration(cmp.Or(p.TimeoutSeconds, 1)) * time.Second
	c.check = q.Check
	return c, nil
}

func question(p *networkingv1.ReadinessProbe) (*Probe, error) {
	switch {
	case p.GetHttpGet() != nil:
		g := p.GetHttpGet()
		addr, err := address("httpGet", g.Host, g.Port)
		if err != nil {
			return nil, err
		}
		scheme := strings.ToLower(cmp.Or(g.Scheme, "http"))
		if scheme != "http" && scheme != "https" {
			return nil, fmt.Errorf("httpGet.scheme: %q is neither HTTP nor HTTPS", g.Scheme)
		}
		header := http.Header{}
		for _, h := range g.HttpHeaders {
			header.Add(h.Name, h.Value)
		}
		return &Probe{HTTP: &HTTP{URL: scheme + "://" + addr + "/" + strings.TrimPrefix(g.Path, "/"), Header: header}}, nil
	case p.GetTcpSocket() != nil:
		addr, err := address("tcpSocket", p.GetTcpSocket().Host, p.GetTcpSocket().Port)
		return &Probe{TCP: addr}, err
	case p.GetGrpc() != nil:
		addr, err := address("grpc", "", p.GetGrpc().Port)
		return &Probe{GRPC: &GRPC{Addr: addr, Service: p.GetGrpc().Service}}, err
	case p.GetExec() != nil:
		if len(p.GetExec().Command) == 0 {
			return nil, errors.New("exec.command: empty")
		}
		return &Probe{Exec: p.GetExec().Command}, nil
	}
	return nil, errors.New("httpGet: one of httpGet, tcpSocket, grpc and exec is needed")
}

func address(field, host string, port uint32) (string, error) {
	if port == 0 || port > 65535 {
		return "", fmt.Errorf("%s.port: %d is no port", field, port)
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))), nil
}

// retry is how long the proxy is given to become ready before it is asked again.
const retry = time.Second

// Run asks until ctx ends. It returns nil.
func (c *Checker) Run(ctx context.Context) error {
	for c.o.Ready != nil && c.o.Ready(ctx) != nil {
		if !wait(ctx, retry) {
			return nil
		}
	}
	if !wait(ctx, c.delay) {
		return nil
	}
	state := state{successes: c.successes, failures: c.failure}
	for {
		err := c.check(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the probe was cut short
		}
		if changed, healthy := state.next(err == nil); changed {
			message := ""
			if !healthy {
				message = err.Error()
			}
			c.o.Log.Info("the health of the application changed", "healthy", healthy, "err", err)
			c.o.Report(healthy, message)
		}
		if !wait(ctx, c.period) {
			return nil
		}
	}
}

// state counts results. Nothing is reported before one of the thresholds is reached.
type state struct {
	successes, failures int // the thresholds
	streak              int // of equal results
	last                bool
	known, healthy      bool
}

// next takes a result, and reports whether what is known changed, and to what.
func (s *state) next(ok bool) (changed, healthy bool) {
	if ok != s.last {
		s.streak = 0
	}
	s.last = ok
	s.streak++
	threshold := s.failures
	if ok {
		threshold = s.successes
	}
	if s.streak < threshold || s.known && s.healthy == ok {
		return false, s.healthy
	}
	s.known, s.healthy = true, ok
	return true, ok
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
