package autoregistration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

func TestMemoryBeginsWithNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Memory.Run(ctx) }()
		synctest.Wait()
		if w.count(&w.batches) != 1 || len(w.objects) != 0 {
			t.Errorf("%d calls, %d objects", w.count(&w.batches), len(w.objects))
		}
		cancel()
		<-ended
	})
}

// Random proxies connect, disconnect and move between replicas, and replicas restart. In the end exactly the
// connected proxies have entries.
func TestHistories(t *testing.T) {
	seed, _ := histories.Seed(t)
	synctest.Test(t, func(t *testing.T) { history(t, seed) })
}

func history(t *testing.T, seed uint64) {
	rng := newRand(seed)
	w := newWorld(reviews())
	replicas := map[string]*replica{"a": w.start(t, "a"), "b": w.start(t, "b")}
	type link struct {
		replica string
		client  xds.Client
	}
	connected := map[int][]link{} // by proxy
	n := 0
	for range 400 {
		w.failing(nil)
		if rng.IntN(3) == 0 {
			w.failing(func(string) error {
				if rng.IntN(3) == 0 {
					return []error{ErrConflict, errors.New("timeout")}[rng.IntN(2)]
				}
				return nil
			})
		}
		p := rng.IntN(5)
		name := []string{"a", "b"}[rng.IntN(2)]
		switch rng.IntN(4) {
		case 0, 1:
			n++
			c := stream(fmt.Sprint(n), func(c *xds.Client) { c.Proxy.IPs = []string{fmt.Sprint("10.0.0.", p)} })
			if replicas[name].Connected(t.Context(), c) == nil {
				connected[p] = append(connected[p], link{name, c})
			}
		case 2:
			if list := connected[p]; len(list) > 0 {
				i := rng.IntN(len(list))
				replicas[list[i].replica].Disconnected(list[i].client)
				connected[p] = append(list[:i:i], list[i+1:]...)
			}
		case 3:
			if rng.IntN(10) != 0 {
				break
			}
			for p, list := range connected {
				var kept []link
				for _, l := range list {
					if l.replica == name {
						replicas[name].Disconnected(l.client)
					} else {
						kept = append(kept, l)
					}
				}
				connected[p] = kept
			}
			w.failing(nil)
			replicas[name].stop()
			replicas[name] = w.start(t, name)
		}
		time.Sleep(time.Duration(rng.IntN(15000)) * time.Millisecond)
	}
	w.failing(nil)
	ctx, stop := context.WithCancel(t.Context())
	var swept sync.WaitGroup
	swept.Go(func() { replicas["a"].Sweep(ctx, replicas["a"].o.Store) })
	time.Sleep(10 * time.Minute)
	want, got := map[string]bool{}, map[string]bool{}
	for p, list := range connected {
		if len(list) > 0 {
			want[fmt.Sprintf("reviews-10.0.0.%d-net-1", p)] = true
		}
	}
	for _, o := range w.ObjectsOf(kinds.WorkloadEntry) {
		if o.Kind == kinds.WorkloadEntry {
			got[o.Name] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("entries %v, connected %v", got, want)
	}
	stop()
	swept.Wait()
	for _, r := range replicas {
		r.stop()
	}
}
