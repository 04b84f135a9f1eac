package autoregistration

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/quota"
)

// turns hands entries to workers, one namespace after the other. A namespace has a tenth of the workers at most: where
// its writes hang, behind a webhook that does not answer, the entries of others are still written.
type turns struct {
	each    int // workers of one namespace at a time
	mu      sync.Mutex
	changed *sync.Cond
	closed  bool
	free    int                               // workers
	busy    map[string]int                    // workers, by namespace
	waiting map[string][]types.NamespacedName // by namespace
	order   []string                          // of the namespaces that wait
}

func newTurns(workers int) *turns {
	t := &turns{each: quota.Share(workers), free: workers, busy: map[string]int{}, waiting: map[string][]types.NamespacedName{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// put adds an entry that neither waits nor is worked on.
func (t *turns) put(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ns := key.Namespace
	if len(t.waiting[ns]) == 0 {
		t.order = append(t.order, ns)
	}
	t.waiting[ns] = append(t.waiting[ns], key)
	t.changed.Signal()
}

// take waits for an entry whose turn it is; done ends it. false: there will be none.
func (t *turns) take() (types.NamespacedName, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for i, ns := range t.order {
			if t.free == 0 || t.busy[ns] >= t.each {
				continue
			}
			key := t.waiting[ns][0]
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			if t.waiting[ns] = t.waiting[ns][1:]; len(t.waiting[ns]) > 0 {
				t.order = append(t.order, ns)
			} else {
				delete(t.waiting, ns)
			}
			t.busy[ns]++
			t.free--
			return key, true
		}
		if t.closed && len(t.order) == 0 {
			return types.NamespacedName{}, false
		}
		t.changed.Wait()
	}
}

func (t *turns) done(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[key.Namespace]--; t.busy[key.Namespace] == 0 {
		delete(t.busy, key.Namespace)
	}
	t.free++
	t.changed.Broadcast()
}

// close ends the queue: nothing more will be put. What waits is still handed out.
func (t *turns) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.changed.Broadcast()
}
