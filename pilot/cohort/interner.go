package cohort

import (
	"runtime"
	"sync"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Interner makes the keys that are compared with one another. Safe for concurrent use.
type Interner struct {
	scopes    handles[Scope]
	listeners handles[Listeners]
	inbounds  handles[Inbound]

	mu     sync.Mutex
	lately *simplelru.LRU[Key, struct{}] // without what is a proxy's own
}

// lately is how many keys count as had by somebody: who loses a stream comes again soon.
const lately = 256

// NewInterner makes a Keys.
func NewInterner() *Interner {
	list, err := simplelru.NewLRU[Key, struct{}](lately, nil)
	if err != nil {
		panic(err) // only for sizes below one
	}
	return &Interner{lately: list}
}

// Intern gives the key of a Proxy.
func (k *Interner) Intern(p Inputs) Key {
	x := Key{Scope: k.scopes.of(p.Scope), Listeners: k.listeners.of(Listeners{p.Scope, p.Outbound}), Inbound: k.inbounds.of(p.Inbound)}
	k.mu.Lock()
	k.lately.Add(x, struct{}{})
	k.mu.Unlock()
	x.Address, x.Node, x.Location, x.UnknownWorkload = p.Address, p.Node, p.Location, p.UnknownWorkload
	return x
}

// Handle stands for a value: handles of one Keys are equal where their values are. Other than those of package unique it can be held weakly, so that what was made for
// a value is forgotten once nobody has that value any more.
type Handle[T comparable] struct{ value *T }

// Value gives the value.
func (h Handle[T]) Value() T { return *h.value }

// Weak gives a pointer that does not keep the value; the zero one of no value.
func (h Handle[T]) Weak() weak.Pointer[T] { return weak.Make(h.value) }

// handles makes each value once, as long as somebody has it. Safe for concurrent use.
type handles[T comparable] struct {
	mu   sync.Mutex
	made map[T]weak.Pointer[T]
}

func (h *handles[T]) of(value T) Handle[T] {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.made[value].Value(); p != nil {
		return Handle[T]{p}
	}
	p := new(T)
	*p = value
	if h.made == nil {
		h.made = map[T]weak.Pointer[T]{}
	}
	h.made[value] = weak.Make(p)
	runtime.AddCleanup(p, h.forget, value)
	return Handle[T]{p}
}

// forget drops a value that is gone, unless somebody came with it again.
func (h *handles[T]) forget(value T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made[value].Value() == nil {
		delete(h.made, value)
	}
}
