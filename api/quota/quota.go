package quota

import (
	"net"
	"net/netip"
	"sync"
)

// Address returns the address of a peer, given with its port. false: the peer is on this host, or has no address.
func Address(remote string) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(remote)
	address := at.Addr().Unmap()
	return address, err == nil && !address.IsLoopback()
}

// Counter counts what addresses hold.
type Counter struct {
	most int

	mu   sync.Mutex
	held map[netip.Addr]int
}

// NewCounter returns a Counter. Each address may hold most at a time.
func NewCounter(most int) *Counter { return &Counter{most: most, held: map[netip.Addr]int{}} }

// Take has an address hold one more, and reports false if it holds the most already.
func (c *Counter) Take(a netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[a] >= c.most {
		return false
	}
	c.held[a]++
	return true
}

// Add has an address hold n more, or less if n is negative. It reports whether the address may hold as many. If not,
// they count all the same, until the caller takes them back.
func (c *Counter) Add(a netip.Addr, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[a] += n; c.held[a] == 0 {
		delete(c.held, a)
	}
	return n <= 0 || c.held[a] <= c.most
}

// Held returns how much an address holds.
func (c *Counter) Held(a netip.Addr) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[a]
}

// Listen returns a listener that closes the connections of an address beyond those that it may hold. Addresses of this
// host may hold any number.
func (c *Counter) Listen(l net.Listener) net.Listener { return &listener{l, c} }

type listener struct {
	net.Listener
	counter *Counter
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
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.counter.Add(from, -1) })}, nil
		}
		_ = conn.Close() // whatever it says, the connection is gone
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// Table keeps a value for each address that holds it.
type Table[T any] struct {
	create func() T

	mu     sync.Mutex
	values map[netip.Addr]*value[T]
}

type value[T any] struct {
	of      T
	holders int
}

// NewTable returns a Table whose values are made by a function.
func NewTable[T any](create func() T) *Table[T] {
	return &Table[T]{create: create, values: map[netip.Addr]*value[T]{}}
}

// Hold returns the value of an address, until release is called. All that hold it at a time have the same.
func (t *Table[T]) Hold(a netip.Addr) (of T, release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.values[a]
	if v == nil {
		v = &value[T]{of: t.create()}
		t.values[a] = v
	}
	v.holders++
	return v.of, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if v.holders--; v.holders == 0 {
			delete(t.values, a)
		}
	}
}
