package autoregistration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// stuck is a store in which creations in some namespaces hang, as behind a webhook that does not answer.
type stuck struct {
	*world
	in map[string]bool

	mu        sync.Mutex
	now, most map[string]int // concurrent creations, by namespace
}

func (s *stuck) Create(ctx context.Context, e *Entry) error {
	s.mu.Lock()
	s.now[e.Namespace]++
	s.most[e.Namespace] = max(s.most[e.Namespace], s.now[e.Namespace])
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now[e.Namespace]--
	}()
	if s.in[e.Namespace] {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.world.Create(ctx, e)
}

func machine(ns string, i int, id string) xds.Client {
	return xds.Client{ID: id, Address: "10.1.2.3:4567", Peer: proved(ns, "x"), Proxy: &node.Proxy{
		ID: fmt.Sprintf("m%d.%s", i, ns), Namespace: ns, RegisterGroup: "g", IPs: []string{fmt.Sprintf("10.9.%d.%d", i/200, 1+i%200)},
	}}
}

// Writes hang in two namespaces, where many machines retry. Machines of a third namespace are registered at once.
func TestHangingNamespaceHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []*kinds.Object
		for _, ns := range []string{"bad", "worse", "good"} {
			spec := &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{}}
			groups = append(groups, &kinds.Object{Key: kinds.Key{Kind: kinds.WorkloadGroup, Namespace: ns, Name: "g"}, UID: ns, Spec: spec})
		}
		w := newWorld(groups...)
		store := &stuck{world: w, in: map[string]bool{"bad": true, "worse": true}, now: map[string]int{}, most: map[string]int{}}
		r := w.start(t, "one", func(o *Options) { o.Store = store })
		ctx, cancel := context.WithCancel(t.Context())
		var trying sync.WaitGroup
		for ns := range store.in {
			for i := range 50 {
				trying.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						_ = r.Connected(ctx, machine(ns, i, fmt.Sprint(ns, i, "-", n)))
						time.Sleep(time.Second)
					}
				})
			}
		}
		time.Sleep(30 * time.Second)
		began := time.Now()
		for i := range 100 {
			if err := r.Connected(ctx, machine("good", i, fmt.Sprint("good", i))); err != nil {
				t.Errorf("machine %d of the good namespace: %v", i, err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the good namespace waited %v for the others", d)
		}
		cancel()
		trying.Wait()
		r.stop()
		for ns := range store.in {
			if n := store.most[ns]; n != quota.Share(workers) {
				t.Errorf("%d of %d workers were in %s at a time", n, workers, ns)
			}
		}
	})
}

// Every entry is taken once, in its turn, and waiting entries can be taken after close.
func TestEachEntryIsHandedOutOnce(t *testing.T) {
	turns := newTurns(30)
	key := func(ns string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: ns, Name: fmt.Sprint(i)}
	}
	for i := range 4 {
		turns.put(key("a", i))
	}
	turns.put(key("b", 0))
	turns.close()
	var taken []types.NamespacedName
	for range 3 {
		k, ok := turns.take()
		if !ok {
			t.Fatal("nothing is handed out")
		}
		taken = append(taken, k)
	}
	if want := fmt.Sprint([]types.NamespacedName{key("a", 0), key("b", 0), key("a", 1)}); fmt.Sprint(taken) != want {
		t.Errorf("handed out %v, want %v", taken, want)
	}
	next := make(chan types.NamespacedName)
	go func() {
		defer close(next)
		for k, ok := turns.take(); ok; k, ok = turns.take() {
			next <- k
			turns.done(k)
		}
	}()
	turns.done(taken[0])
	turns.done(taken[2])
	var rest []types.NamespacedName
	for k := range next {
		rest = append(rest, k)
	}
	if want := fmt.Sprint([]types.NamespacedName{key("a", 2), key("a", 3)}); fmt.Sprint(rest) != want {
		t.Errorf("then %v, want %v", rest, want)
	}
}
