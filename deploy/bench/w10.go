package main

import (
	"context"
	"time"
)

// slowReaders is W10.
type slowReaders struct{}

func (slowReaders) name() string { return "W10" }
func (slowReaders) needs() needs {
	return needs{fleet: true, delta: true, limit: true, length: time.Minute}
}

func (slowReaders) about(options) string {
	return "As W3, but each tenth proxy connects again, asks for everything and reads nothing, and does so again each time it is cut " +
		"off. Latencies are those of the other proxies. Memory is compared with the memory before."
}

func (slowReaders) rows() []row {
	return append(endpointFlips{}.rows()[:7], row{name: "RSS grows by", unit: "MiB"}, row{name: "cut off", unit: "times", informative: true})
}

func (slowReaders) run(ctx context.Context, s *session) (figures, error) {
	before, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	reads := func(proxy int) bool { return proxy%10 != 1 }
	if err := s.fleet.Stall(ctx, func(proxy int) bool { return !reads(proxy) }); err != nil {
		return nil, err
	}
	f, err := s.flip(ctx, reads)
	if err != nil {
		return nil, err
	}
	after, err := s.usage()
	f["RSS grows by"], f["cut off"] = mib(after.rss-before.rss), float64(s.fleet.Counters().Cut)
	return f, err
}
