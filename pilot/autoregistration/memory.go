package autoregistration

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Memory is the Store of a server without an API server. It is also a source of its entries: a write passes the
// change to the handler before it returns.
type Memory struct {
	handler config.Handler

	mu      sync.Mutex // held while the handler runs
	entries map[types.NamespacedName]*Entry
	writes  int
}

// NewMemory returns an empty store.
func NewMemory(h config.Handler) *Memory {
	return &Memory{handler: h, entries: map[types.NamespacedName]*Entry{}}
}

// Run reports an empty state, as a source must, and waits for ctx to end.
func (m *Memory) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.writes == 0 {
		m.handler(nil)
	}
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Findings returns nil: entries in a Memory have no faults to report.
func (m *Memory) Findings() []diag.Diagnostic { return nil }

// Get implements Store.
func (m *Memory) Get(_ context.Context, key types.NamespacedName) (*Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	if e == nil {
		return nil, ErrNotFound
	}
	return e.clone(), nil
}

// Create implements Store.
func (m *Memory) Create(_ context.Context, e *Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[e.NamespacedName] != nil {
		return ErrConflict
	}
	c := e.clone()
	c.Created, c.UID, c.Spec = time.Now().UTC().Truncate(time.Second), strconv.Itoa(m.writes+1), proto.CloneOf(e.Spec)
	m.put(c)
	*e = *c.clone()
	return nil
}

// Update implements Store.
func (m *Memory) Update(_ context.Context, e *Entry) error {
	return m.change(e, func(c *Entry) { c.Annotations = maps.Clone(e.Annotations) })
}

// UpdateStatus implements Store.
func (m *Memory) UpdateStatus(_ context.Context, e *Entry) error {
	return m.change(e, func(c *Entry) { c.Health = e.Health })
}

func (m *Memory) change(e *Entry, edit func(*Entry)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkVersion(e); err != nil {
		return err
	}
	c := m.entries[e.NamespacedName].clone()
	edit(c)
	m.put(c)
	*e = *c.clone()
	return nil
}

// Delete implements Store.
func (m *Memory) Delete(_ context.Context, e *Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkVersion(e); err != nil {
		return err
	}
	delete(m.entries, e.NamespacedName)
	m.writes++
	m.handler([]kinds.Change{{Key: objectKey(e.NamespacedName)}})
	return nil
}

// checkVersion returns an error unless e is the current version of a stored entry.
func (m *Memory) checkVersion(e *Entry) error {
	switch stored := m.entries[e.NamespacedName]; {
	case stored == nil:
		return ErrNotFound
	case stored.UID != e.UID, e.Version != "" && stored.Version != e.Version:
		return ErrConflict
	}
	return nil
}

func (m *Memory) put(e *Entry) {
	m.writes++
	e.Version = strconv.Itoa(m.writes)
	m.entries[e.NamespacedName] = e
	o := e.object()
	m.handler([]kinds.Change{{Key: o.Key, Object: o}})
}

func objectKey(n types.NamespacedName) kinds.Key {
	return kinds.Key{Kind: kinds.WorkloadEntry, Namespace: n.Namespace, Name: n.Name}
}

// object returns the entry in the form in which sources report objects.
func (e *Entry) object() *kinds.Object {
	annotations := maps.Clone(e.Annotations)
	delete(annotations, kinds.AnnotationHealthy)
	if e.Health != nil {
		annotations[kinds.AnnotationHealthy] = strconv.FormatBool(e.Health.Healthy)
	}
	return &kinds.Object{
		Key: objectKey(e.NamespacedName), UID: e.UID, Labels: e.Labels, Annotations: annotations, Created: e.Created, Spec: e.Spec,
	}
}
