package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// restarts is W16.
type restarts struct{}

// restartFactor is how many times more proxies W16 connects than the other workloads.
const restartFactor = 10

func (restarts) name() string { return "W16" }
func (restarts) needs() needs { return needs{length: 5 * time.Second} }

func (restarts) about(o options) string {
	return fmt.Sprintf("%d proxies are connected. The server is killed and starts again at once, as when all replicas fail together, while "+
		"an endpoint changes every 100 ms. The proxies connect again as Envoy does, after a pause that doubles. All are in sync when each has "+
		"subscribed to everything and has the last change; times begin with the kill.", o.restarted())
}

func (o options) restarted() int { return restartFactor * o.proxies[0] }

func (restarts) rows() []row {
	return []row{
		{name: "ready", unit: "s"},
		{name: "all are in sync", unit: "s"},
		{name: "the longest wait of a change", unit: "s"},
		{name: "CPU", unit: "s"},
		{name: "peak RSS", unit: "MiB"},
		{name: "RSS before", unit: "MiB"},
		{name: "streams that ended", informative: true},
	}
}

func (restarts) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.fleet, err = s.connect(load.Options{Proxies: s.restarted()}); err != nil {
		return nil, err
	}
	if err := s.fleet.Wait(ctx); err != nil {
		return nil, err
	}
	before, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	var killed, ready time.Time
	restarted := make(chan error, 1)
	change, tidy, err := s.addresses(ctx)
	if err != nil {
		return nil, err
	}
	making, stop := context.WithCancel(ctx)
	defer stop()
	track, counted := s.fleet.Track(load.TrackOptions{Kinds: change.kinds, Number: change.find}), s.fleet.Counters()
	go func() {
		killed = time.Now()
		err := s.restart(ctx, s.cpu)
		if err == nil {
			err = s.ready(ctx)
			ready = time.Now()
		}
		if err != nil {
			stop() // no change reaches a proxy
		}
		restarted <- err
	}()
	_, err = s.make(making, change, track)
	if err := errors.Join(<-restarted, err); err != nil {
		return nil, err
	}
	for s.fleet.Live() < s.fleet.Size() {
		if err := sleepUntil(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return nil, fmt.Errorf("%d of %d proxies are connected: %w", s.fleet.Live(), s.fleet.Size(), err)
		}
	}
	synced := time.Now()
	after, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	return figures{
		"ready": ready.Sub(killed).Seconds(), "all are in sync": synced.Sub(killed).Seconds(),
		"the longest wait of a change": percentile(track.Latencies(), 1).Seconds(), "CPU": after.cpu.Seconds(),
		"peak RSS": mib(after.peak), "RSS before": mib(before.rss),
		"streams that ended": float64(s.fleet.Counters().Since(counted).Refused),
	}, tidy()
}
