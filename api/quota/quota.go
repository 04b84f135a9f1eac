package quota

import (
	"net"
	"net/netip"
	"sync"
)

// Address returns the address of a peer, given with its port. It returns false if the peer is on this host or has no
// address.
func Address(remote string) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(remote)
	address := at.Addr().Unmap()
	return address, err == nil && !address.IsLoopback()
}

// Share returns how much of a pool that all clients share one client may hold: a tenth, and at least one.
func Share(total int) int { return max(1, total/10) }

// Counter counts the amounts that holders, such as addresses or identities, hold.
type Counter[K comparable] struct {
	most int

	mu   sync.Mutex
	held map[K]int
}

// NewCounter returns a Counter. Each holder may hold most at a time.
func NewCounter[K comparable](most int) *Counter[K] {
	return &Counter[K]{most: most, held: map[K]int{}}
}

// Most returns how much each holder may hold.
func (c *Counter[K]) Most() int { return c.most }

// Take adds one to a holder's amount. If the holder has the maximum already, it adds nothing and reports false.
func (c *Counter[K]) Take(k K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[k] >= c.most {
		return false
	}
	c.held[k]++
	return true
}

// Add adds n, which may be negative, to a holder's amount, and reports whether the amount is allowed. If not, n is
// still added until the caller subtracts it.
func (c *Counter[K]) Add(k K, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[k] += n; c.held[k] == 0 {
		delete(c.held, k)
	}
	return n <= 0 || c.held[k] <= c.most
}

// Held returns a holder's amount.
func (c *Counter[K]) Held(k K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[k]
}

// Values counts the sizes of values that holders hold. A value that a holder holds several times is counted once: for
// example, the streams of a Deployment subscribe to the same list of names, which is in memory once.
type Values[K, V comparable] struct {
	sizes *Counter[K]

	mu   sync.Mutex
	held map[held[K, V]]int
}

type held[K, V comparable] struct {
	by    K
	value V
}

// NewValues returns Values. The values of each holder may have most bytes in total.
func NewValues[K, V comparable](most int) *Values[K, V] {
	return &Values[K, V]{sizes: NewCounter[K](most), held: map[held[K, V]]int{}}
}

// Most returns how many bytes each holder may hold.
func (v *Values[K, V]) Most() int { return v.sizes.most }

// Hold adds a value with a size in bytes to a holder's values, and reports whether the total is allowed. If not, the
// value is still held until Release.
func (v *Values[K, V]) Hold(k K, x V, size int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held[held[K, V]{k, x}]++
	if v.held[held[K, V]{k, x}] > 1 {
		return true
	}
	return v.sizes.Add(k, size)
}

// Release takes back one Hold of a value.
func (v *Values[K, V]) Release(k K, x V, size int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := held[K, V]{k, x}
	if v.held[at]--; v.held[at] == 0 {
		delete(v.held, at)
		v.sizes.Add(k, -size)
	}
}

// Add adds bytes that are no value's, which may be fewer than 0, to a holder's values, and reports whether the total is
// allowed. If not, they are still added until the caller subtracts them.
func (v *Values[K, V]) Add(k K, bytes int) bool { return v.sizes.Add(k, bytes) }

// Held returns how many bytes a holder holds.
func (v *Values[K, V]) Held(k K) int { return v.sizes.Held(k) }

// Listen returns a listener that closes the connections of an address beyond the number that c lets it hold.
// Addresses of this host may hold any number.
func Listen(l net.Listener, c *Counter[netip.Addr]) net.Listener { return &listener{l, c} }

type listener struct {
	net.Listener
	counter *Counter[netip.Addr]
}

// Accept returns the next connection that is within the bound.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, bounded := Address(conn.RemoteAddr().String())
		if !bounded {
			return conn, nil
		}
		if l.counter.Take(from) {
			return &counted{Conn: conn, from: from, counter: l.counter}, nil
		}
		_ = conn.Close() // the connection is closed in any case
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	from    netip.Addr
	counter *Counter[netip.Addr]
	closed  sync.Once
}

func (c *counted) Close() error {
	c.closed.Do(func() { c.counter.Add(c.from, -1) })
	return c.Conn.Close()
}

// Table keeps a value for each holder, such as an address or an identity, while the holder uses it.
type Table[K comparable, T any] struct {
	create func() T

	mu     sync.Mutex
	values map[K]*value[T]
}

type value[T any] struct {
	of      T
	holders int
}

// NewTable returns a Table whose values create makes.
func NewTable[K comparable, T any](create func() T) *Table[K, T] {
	return &Table[K, T]{create: create, values: map[K]*value[T]{}}
}

// Hold returns the value of a holder. The caller must call release. Concurrent calls for a holder return the same
// value.
func (t *Table[K, T]) Hold(k K) (of T, release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.values[k]
	if v == nil {
		v = &value[T]{of: t.create()}
		t.values[k] = v
	}
	v.holders++
	return v.of, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if v.holders--; v.holders == 0 {
			delete(t.values, k)
		}
	}
}
