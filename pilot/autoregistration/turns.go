package autoregistration

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/quota"
)

// turns is a queue of entries that is fair among namespaces. A namespace gets a tenth of the workers at most, so that
// writes that hang there, behind a webhook that does not answer, do not delay the entries of other namespaces.
type turns struct {
	perNamespace int // maximum number of workers of one namespace
	mu           sync.Mutex
	changed      *sync.Cond
	closed       bool
	free         int                               // number of idle workers
	busy         map[string]int                    // number of workers, by namespace
	waiting      map[string][]types.NamespacedName // entries, by namespace
	order        []string                          // namespaces with waiting entries, next first
}

func newTurns(workers int) *turns {
	t := &turns{perNamespace: quota.Share(workers), free: workers, busy: map[string]int{}, waiting: map[string][]types.NamespacedName{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// put adds an entry. It must not be waiting or in progress.
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

// take waits for an entry whose turn it is. The caller must call done with it. ok is false once the queue is closed
// and empty.
func (t *turns) take() (key types.NamespacedName, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for i, ns := range t.order {
			if t.free == 0 || t.busy[ns] >= t.perNamespace {
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

// close declares that no more entries will be put. take still returns the waiting ones.
func (t *turns) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.changed.Broadcast()
}
