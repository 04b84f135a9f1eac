package main

import (
	"context"
	"time"
)

// connects is W2a. It leaves the fleet connected for the next workloads.
type connects struct{}

func (connects) name() string { return "W2a" }
func (connects) needs() needs { return needs{fleet: true, connects: true, limit: true} }

func (connects) about(options) string {
	return "All proxies connect at once, knowing nothing, until each has a full configuration. A refused stream is tried again as Envoy does."
}

func (connects) rows() []row {
	none := 0.0
	return []row{
		{name: "wall time", unit: "s", ratio: both(4)},
		{name: "p50 of the proxies", unit: "s"},
		{name: "CPU", unit: "s", ratio: both(10)},
		{name: "received by a proxy", unit: "kB"},
		{name: "refused", unit: "streams", atMost: &none, informative: true},
		{name: "RSS at rest", unit: "MiB"},
		{name: "RSS a proxy", unit: "kB"},
	}
}

func (connects) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	before, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := s.fill(ctx); err != nil {
		return nil, err
	}
	wall := time.Since(begin)
	after, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	counters := s.fleet.Counters()
	return figures{
		"wall time": wall.Seconds(), "p50 of the proxies": percentile(s.fleet.SyncTimes(), 0.5).Seconds(),
		"CPU":                 (after.cpu - before.cpu).Seconds(),
		"received by a proxy": kB(counters.Bytes()) / float64(s.proxies), "refused": float64(counters.Refused),
		"RSS at rest": mib(after.rss), "RSS a proxy": kB(after.rss-before.rss) / float64(s.proxies),
	}, nil
}

// reconnects is W2b.
type reconnects struct{}

func (reconnects) name() string { return "W2b" }
func (reconnects) needs() needs { return needs{fleet: true, delta: true} }

func (reconnects) about(options) string {
	return "All proxies lose their streams and connect again at once, as after a restart of a load balancer; each names the versions of " +
		"what it holds, which is all there is."
}

func (reconnects) rows() []row {
	none := 0.0
	return []row{
		{name: "CPU", unit: "s", ratio: both(20)},
		{name: "received by a proxy", unit: "kB", ratio: both(50)},
		{name: "resources sent to a proxy"},
		{name: "until all have asked", unit: "s", informative: true},
		{name: "refused", unit: "streams", atMost: &none, informative: true},
	}
}

func (reconnects) run(ctx context.Context, s *session) (figures, error) {
	before, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	counted, begin := s.fleet.Counters(), time.Now()
	if err := s.fleet.Reconnect(ctx); err != nil {
		return nil, err
	}
	asked := time.Since(begin)
	after, err := s.settle(ctx)
	for err == nil && s.fleet.Live() < s.proxies { // refused proxies pause before they try again
		after, err = s.settle(ctx)
	}
	if err != nil {
		return nil, err
	}
	received, resources := s.fleet.Counters().Since(counted), int64(0)
	for _, n := range received.Types {
		resources += n.Resources
	}
	return figures{
		"CPU": (after.cpu - before.cpu).Seconds(), "received by a proxy": kB(received.Bytes()) / float64(s.proxies),
		"resources sent to a proxy": float64(resources) / float64(s.proxies),
		"until all have asked":      asked.Seconds(), "refused": float64(received.Refused),
	}, nil
}

func kB(n int64) float64 { return float64(n) / 1000 }
