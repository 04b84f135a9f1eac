package main

import (
	"context"
	"errors"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// changes are what a workload changes repeatedly in the world of a connected fleet.
type changes struct {
	every time.Duration
	// apply makes change n. undo takes it back after half the time until the next change. Optional.
	apply func(n int) error
	undo  func() error
	// kinds are the types of the resources that contain the number of a change. find returns the highest number in one, or
	// -1.
	kinds []load.Type
	find  func(body []byte) int
	// to reports whether a change must reach a proxy. Nil means all proxies.
	to func(proxy int) bool
	// meanwhile runs until the changes are made. Optional.
	meanwhile func(until context.Context) error
}

// making is a figure without a row: the seconds in which changes were made and awaited.
const making = "making changes"

// changed makes changes for the length of the workload and returns the figures.
func (s *session) changed(ctx context.Context, c changes) (figures, error) {
	before, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	until, stop := context.WithCancel(ctx)
	defer stop()
	track, counted := s.fleet.Track(load.TrackOptions{Kinds: c.kinds, Number: c.find, Follows: c.to}), s.fleet.Counters()
	if c.meanwhile != nil {
		go func() { ended <- c.meanwhile(until) }()
	} else {
		ended <- nil
	}
	begin := time.Now()
	writing, err := s.make(ctx, c, track)
	took := time.Since(begin)
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	after, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	latencies, received, made := track.Latencies(), s.fleet.Counters().Since(counted), float64(track.Made())
	return figures{
		"p50": ms(percentile(latencies, 0.5)), "p99": ms(percentile(latencies, 0.99)), "CPU a change": ms(after.cpu-before.cpu) / made,
		"received by a proxy a change": kB(received.Bytes()) / made / float64(s.fleet.Size()), "the API server's write": ms(writing) / made,
		"endpoints' resources": float64(received.Types[load.Endpoints].Resources) / made / float64(s.fleet.Size()),
		"streams that ended":   float64(received.Refused),
		"changes":              made, making: took.Seconds(),
	}, nil
}

// make makes the changes and waits until every proxy has seen the last. It returns the time that the API server took
// for all of them.
func (s *session) make(ctx context.Context, c changes, track *load.Track) (writing time.Duration, err error) {
	begin := time.Now()
	for n := 0; ; n++ {
		if err := sleepUntil(ctx, begin.Add(time.Duration(n)*c.every)); err != nil {
			return 0, err
		}
		now := time.Now()
		if err := c.apply(track.Next()); err != nil {
			return 0, err
		}
		writing += time.Since(now)
		last := time.Since(begin)+c.every > s.length
		if last {
			limited, cancel := context.WithTimeout(ctx, timeout)
			err := track.Wait(limited)
			cancel()
			if err != nil && c.undo != nil {
				err = errors.Join(err, c.undo()) // the next workload needs the world unchanged
			}
			if err != nil {
				return 0, err
			}
		}
		if c.undo != nil {
			if err := sleepUntil(ctx, begin.Add(time.Duration(n)*c.every+c.every/2)); err != nil {
				return 0, err
			}
			if err := c.undo(); err != nil {
				return 0, err
			}
		}
		if last {
			return writing, nil
		}
	}
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}

// changeRows returns the rows of changed, with the goals of both modes for p99, CPU and bytes.
func changeRows(p99, cpu, bytes map[mode]float64) []row {
	return []row{
		{name: "p50", unit: "ms"},
		{name: "p99", unit: "ms", ratio: p99},
		{name: "CPU a change", unit: "ms", ratio: cpu},
		{name: "received by a proxy a change", unit: "kB", ratio: bytes},
		{name: "the API server's write", unit: "ms", informative: true},
		{name: "streams that ended", informative: true},
		{name: "changes", informative: true},
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
