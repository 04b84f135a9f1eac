package faults

import (
	"net"
	"sync"
)

// network is the state of the network between clients and the proxy.
type network int

const (
	// up: the network works.
	up network = iota
	// refused: connections are reset, as by a machine without a listener.
	refused
	// lost: packets are lost without an error, as when a cable is unplugged.
	lost
)

// wire is a listener whose connections share the network's state.
type wire struct {
	net.Listener

	mu    sync.Mutex
	cond  *sync.Cond
	state network
	conns map[*conn]struct{}
}

func newWire(l net.Listener) *wire {
	w := &wire{Listener: l, conns: map[*conn]struct{}{}}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// Accept returns the next connection that is not refused. A connection that is accepted while the network is lost waits
// for its first byte.
func (w *wire) Accept() (net.Conn, error) {
	for {
		inner, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, wire: w}
		w.mu.Lock()
		if w.state == refused {
			w.mu.Unlock()
			reset(inner)
			continue
		}
		w.conns[c] = struct{}{}
		w.mu.Unlock()
		return c, nil
	}
}

// set changes the network's state. The state refused ends all connections.
func (w *wire) set(state network) {
	w.mu.Lock()
	w.state = state
	var ended []*conn
	if state == refused {
		for c := range w.conns {
			ended = append(ended, c)
		}
	}
	w.cond.Broadcast()
	w.mu.Unlock()
	for _, c := range ended {
		c.reset()
	}
}

// pass waits until bytes may pass, or the connection has ended.
func (w *wire) pass(c *conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.state == lost {
		if _, open := w.conns[c]; !open {
			return net.ErrClosed
		}
		w.cond.Wait()
	}
	return nil
}

// conn is a connection that passes bytes while the network is up.
type conn struct {
	net.Conn
	wire *wire
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if lostErr := c.wire.pass(c); lostErr != nil {
		return 0, lostErr
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.wire.pass(c); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func (c *conn) reset() {
	c.forget()
	reset(c.Conn)
}

func (c *conn) forget() {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
	c.wire.cond.Broadcast()
}

// reset closes a connection with a TCP RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
