package main

import (
	"context"
	"fmt"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// noisyNeighbour is W7.
type noisyNeighbour struct{}

func (noisyNeighbour) name() string { return "W7" }
func (noisyNeighbour) needs() needs {
	return needs{fleet: true, delta: true, limit: true, length: usualLength}
}

func (noisyNeighbour) about(options) string {
	return "One namespace changes a VirtualService 10 times a second, and another one every 5 s: from the other's write to the API server " +
		"until the route reaches each proxy. CPU and bytes are those of all changes together, a change of the other namespace."
}

func (noisyNeighbour) rows() []row {
	most := 30.0
	rows := changeRows(nil, nil, nil)
	rows[1].atMost = &most
	return append(rows, row{name: "changes of the noisy namespace", informative: true})
}

func (noisyNeighbour) run(ctx context.Context, s *session) (figures, error) {
	const noisy, quiet = 0, 1 // services, in the namespaces with the same numbers
	prefix, made := marks(), 0
	f, err := s.changed(ctx, changes{
		every: 5 * time.Second, kinds: routes(), find: load.FindMark(prefix),
		apply: func(n int) error { return s.mark(ctx, quiet, load.Mark(prefix, n)) },
		meanwhile: func(until context.Context) error {
			for begin := time.Now(); sleepUntil(until, begin.Add(time.Duration(made)*100*time.Millisecond)) == nil; made++ {
				if err := s.mark(ctx, noisy, load.Mark("noise-", made)); err != nil {
					return fmt.Errorf("change the noisy namespace: %w", err)
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	f["changes of the noisy namespace"] = float64(made)
	return f, nil
}
