package cohort

import (
	"runtime"
	"sync"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Interner makes keys. Only keys of one Interner may be compared. Safe for concurrent use.
type Interner struct {
	clients   interned[Client]
	listeners interned[Listeners]
	inbounds  interned[Inbound]
	patches   interned[Patches]

	mu     sync.Mutex
	recent *simplelru.LRU[Key, struct{}] // without the proxies' own parts
}

// recentKeys is the number of keys that stay interned without a user: a proxy that loses its stream reconnects soon.
const recentKeys = 256

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	list, err := simplelru.NewLRU[Key, struct{}](recentKeys, nil)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &Interner{recent: list}
}

// Intern returns the key of Inputs.
func (k *Interner) Intern(p Inputs) Key {
	x := Key{Client: k.clients.intern(p.Client), Listeners: k.listeners.intern(Listeners{p.Client, p.Outbound}), Inbound: k.inbounds.intern(p.Inbound)}
	if p.Patches != (Patches{}) {
		x.Patches = k.patches.intern(p.Patches)
	}
	k.mu.Lock()
	k.recent.Add(x, struct{}{})
	k.mu.Unlock()
	x.Address, x.Node, x.Location, x.UnknownWorkload = p.Address, p.Node, p.Location, p.UnknownWorkload
	return x
}

// Handle stands for a value. Handles of one Interner are equal if their values are. Unlike a handle of package unique
// it can be held weakly, so that a cache can drop what was made for a value once nobody uses the value.
type Handle[T comparable] struct{ value *T }

// Value returns the value, or the zero value of the zero Handle.
func (h Handle[T]) Value() (value T) {
	if h.value != nil {
		value = *h.value
	}
	return value
}

// None reports whether h stands for no value: the zero Handle.
func (h Handle[T]) None() bool { return h.value == nil }

// Weak returns a pointer that does not keep the value alive. It is zero for the zero Handle.
func (h Handle[T]) Weak() weak.Pointer[T] { return weak.Make(h.value) }

// interned stores each value once, as long as somebody uses it. Safe for concurrent use.
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

// forget drops a value that was collected, unless it was interned again.
func (h *interned[T]) forget(value T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.values[value].Value() == nil {
		delete(h.values, value)
	}
}
