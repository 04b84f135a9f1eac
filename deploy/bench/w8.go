package main

import (
	"context"
	"fmt"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// idleProxies is W8.
type idleProxies struct{}

func (idleProxies) name() string { return "W8" }
func (idleProxies) needs() needs { return needs{limit: true} }

func (idleProxies) about(o options) string {
	return fmt.Sprintf(
		"Memory with %s connected proxies, one step after the other on one server, each once it has come to rest. A proxy's share is the slope "+
			"of the line that fits best; the heap is what lives after a garbage collection.", list(o.idle))
}

func (idleProxies) rows() []row {
	return []row{
		{name: "RSS without proxies", unit: "MiB", ratio: both(2.5)},
		{name: "RSS a proxy", unit: "kB", ratio: both(10)},
		{name: "heap without proxies", unit: "MiB"},
		{name: "heap a proxy", unit: "kB"},
		{name: "RSS with all", unit: "MiB"},
		{name: "goroutines a proxy"},
	}
}

func (idleProxies) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var proxies, rss, heap, routines []float64
	connected := 0
	for _, n := range s.idle {
		if n > connected {
			fleet, err := s.connect(load.Options{Proxies: n - connected, Identity: identity(s.world, connected)})
			if err != nil {
				return nil, err
			}
			defer fleet.Stop()
			if err := fleet.Wait(ctx); err != nil {
				return nil, err
			}
			connected = n
		}
		u, err := s.settle(ctx)
		if err != nil {
			return nil, err
		}
		proxies, rss = append(proxies, float64(n)), append(rss, float64(u.rss))
		if s.monitoring == "" {
			continue
		}
		h, err := s.heap(ctx)
		if err != nil {
			return nil, err
		}
		heap, routines = append(heap, float64(h.live)), append(routines, float64(h.goroutines))
	}
	base, each := line(proxies, rss)
	f := figures{"RSS without proxies": mib(int64(base)), "RSS a proxy": each / 1000, "RSS with all": mib(int64(rss[len(rss)-1]))}
	if s.idle[0] == 0 { // measured; the line has only an estimate
		f["RSS without proxies"] = mib(int64(rss[0]))
	}
	if len(heap) > 0 {
		base, each := line(proxies, heap)
		_, goroutines := line(proxies, routines)
		f["heap without proxies"], f["heap a proxy"], f["goroutines a proxy"] = mib(int64(base)), each/1000, goroutines
	}
	return f, nil
}

// line fits y = base + each * x by least squares.
func line(x, y []float64) (base, each float64) {
	var sumX, sumY, sumXX, sumXY float64
	for i := range x {
		sumX, sumY, sumXX, sumXY = sumX+x[i], sumY+y[i], sumXX+x[i]*x[i], sumXY+x[i]*y[i]
	}
	n := float64(len(x))
	each = (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	return (sumY - each*sumX) / n, each
}
