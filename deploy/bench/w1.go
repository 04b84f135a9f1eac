package main

import (
	"context"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// coldStart is W1.
type coldStart struct{}

func (coldStart) name() string { return "W1" }
func (coldStart) needs() needs { return needs{} }

func (coldStart) about(options) string {
	return "Cold start: from the start of the process until /ready says so, and until one proxy, which tries all the time, has a full " +
		"configuration; CPU and memory once the server has come to rest."
}

func (coldStart) rows() []row {
	return []row{
		{name: "ready", unit: "s"},
		{name: "first full configuration", unit: "s"},
		{name: "CPU", unit: "s", ratio: both(2)},
		{name: "peak RSS", unit: "MiB", ratio: both(2.5)},
		{name: "RSS at rest", unit: "MiB"},
		{name: "of it files", unit: "MiB"},
	}
}

func (coldStart) run(ctx context.Context, s *session) (figures, error) {
	ready := make(chan error, 1)
	var readyAfter time.Duration
	go func() {
		err := s.ready(ctx)
		readyAfter = time.Since(s.started)
		ready <- err
	}()
	if err := s.listens(ctx); err != nil {
		return nil, err
	}
	fleet, err := s.connect(load.Options{Proxies: 1, Retry: 10 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer fleet.Stop()
	if err := fleet.Wait(ctx); err != nil {
		return nil, err
	}
	full := time.Since(s.started)
	if err := <-ready; err != nil {
		return nil, err
	}
	u, err := s.settle(ctx)
	return figures{"ready": readyAfter.Seconds(), "first full configuration": full.Seconds(), "CPU": u.cpu.Seconds(), "peak RSS": mib(u.peak),
		"RSS at rest": mib(u.rss), "of it files": mib(u.files)}, err
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
