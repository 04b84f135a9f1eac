package main

import (
	"context"
	"time"
)

// connects is W2a. It leaves the fleet connected for the workloads after it.
type connects struct{}

func (connects) name() string  { return "W2a" }
func (connects) onFleet() bool { return true }

func (connects) about() string {
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
	if s.fleet, err = s.connect(s.proxies, 0); err != nil {
		return nil, err
	}
	if err := s.fleet.Wait(ctx); err != nil {
		return nil, err
	}
	wall := time.Since(begin)
	after, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	counters := s.fleet.Counters()
	return figures{
		"wall time": wall.Seconds(), "p50 of the proxies": percentile(s.fleet.SyncTimes(), 0.5).Seconds(), "CPU": (after.cpu - before.cpu).Seconds(),
		"received by a proxy": kB(counters.Bytes()) / float64(s.proxies), "refused": float64(counters.Refused),
		"RSS at rest": mib(after.rss), "RSS a proxy": kB(after.rss-before.rss) / float64(s.proxies),
	}, nil
}

func kB(n int64) float64 { return float64(n) / 1000 }
