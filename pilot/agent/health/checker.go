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

// Options configure a Checker.
type Options struct {
	// Probe is the readinessProbe of a ProxyConfig.
	Probe *networkingv1.ReadinessProbe
	// Source is the field Source of the Probe.
	Source bool
	// Ready returns nil once the proxy accepts traffic. The probe is not made before. Without Ready it is made at once.
	Ready func(ctx context.Context) error
	// Report is called with the first result, and with each change. The message says why the application is unhealthy.
	// Run makes the calls, one at a time.
	Report func(healthy bool, message string)
	Log    *slog.Logger
}

// Checker probes an application periodically.
type Checker struct {
	o                   Options
	probe               interface{ Check(context.Context) error } // *Probe
	delay, period       time.Duration
	successes, failures int
}

// New returns a Checker. The error names the field of the probe that is wrong.
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
		failures:  int(cmp.Or(p.FailureThreshold, 3)),
	}
	probe, err := newProbe(p)
	if err != nil {
		return nil, fmt.Errorf("readinessProbe.%w", err)
	}
	probe.Source = o.Source
	probe.Timeout = time.Duration(cmp.Or(p.TimeoutSeconds, 1)) * time.Second
	c.probe = probe
	return c, nil
}

func newProbe(p *networkingv1.ReadinessProbe) (*Probe, error) {
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
		return "", fmt.Errorf("%s.port: %d is not a port", field, port)
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))), nil
}

// readyInterval is the time between two calls of Ready.
const readyInterval = time.Second

// Run probes the application until ctx ends. It returns nil.
func (c *Checker) Run(ctx context.Context) error {
	for c.o.Ready != nil && c.o.Ready(ctx) != nil {
		if !wait(ctx, readyInterval) {
			return nil
		}
	}
	if !wait(ctx, c.delay) {
		return nil
	}
	state := state{successes: c.successes, failures: c.failures}
	for {
		err := c.probe.Check(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended the probe
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

// state counts results. It reports nothing before one of the thresholds is reached.
type state struct {
	successes, failures int // thresholds
	streak              int // number of equal results in a row
	last                bool
	known, healthy      bool
}

// next adds a result, and reports whether the health changed, and to what.
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
