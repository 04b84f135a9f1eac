package cohort

import (
	"runtime"
	"sync"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Interner makes keys. Keys of different Interners must not be compared. An Interner is safe for concurrent use.
type Interner struct {
	clients   interned[Client]
	listeners interned[Listeners]
	inbounds  interned[Inbound]
	patches   interned[Patches]
	selves    interned[Self]

	mu sync.Mutex
	// recent keeps keys alive, without the fields that are not interned.
	recent *simplelru.LRU[Key, struct{}]
}

// recentKeys is the number of keys that stay interned without a user. A proxy that loses its stream usually
// reconnects soon.
const recentKeys = 256

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	list, err := simplelru.NewLRU[Key, struct{}](recentKeys, nil)
	if err != nil {
		panic(err) // unreachable: the size is positive
	}
	return &Interner{recent: list}
}

// Intern returns the Key of Inputs.
func (k *Interner) Intern(p Inputs) Key {
	x := Key{Client: k.clients.intern(p.Client), Listeners: k.listeners.intern(Listeners{p.Client, p.Outbound}),
		Inbound: k.inbounds.intern(p.Inbound)}
	if p.Patches != (Patches{}) {
		x.Patches = k.patches.intern(p.Patches)
	}
	if p.Self != (Self{}) {
		x.Self = k.selves.intern(p.Self)
	}
	k.mu.Lock()
	k.recent.Add(x, struct{}{})
	k.mu.Unlock()
	x.Address, x.Node, x.Location, x.UnknownWorkload = p.Address, p.Node, p.Location, p.UnknownWorkload
	return x
}

// Handle stands for a value. Handles of one Interner are equal if and only if their values are. Unlike a handle of
// package unique it can be held weakly, so that a cache can drop what it made from a value that is no longer used.
type Handle[T comparable] struct{ value *T }

// Value returns the value. The zero Handle has the zero value.
func (h Handle[T]) Value() (value T) {
	if h.value != nil {
		value = *h.value
	}
	return value
}

// None reports whether h is the zero Handle.
func (h Handle[T]) None() bool { return h.value == nil }

// Weak returns a pointer that does not keep the value alive. It is the zero Pointer for the zero Handle.
func (h Handle[T]) Weak() weak.Pointer[T] { return weak.Make(h.value) }

// interned stores one copy of each value that is in use. It is safe for concurrent use.
type interned[T comparable] struct {
	mu     sync.Mutex
	values map[T]weak.Pointer[T]
}

func (h *interned[T]) intern(value T) Handle[T] {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.values[value].Value(); p != nil {
		return Handle[T]{p}
	}
	p := new(T)
	*p = value
	lists.Put(&h.values, value, weak.Make(p))
	runtime.AddCleanup(p, h.forget, value)
	return Handle[T]{p}
}

// forget drops a collected value, unless it was interned again.
func (h *interned[T]) forget(value T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.values[value].Value() == nil {
		delete(h.values, value)
	}
}
