package xds

import (
	"net"
	"net/netip"
	"sync"
)

// accepted are the accepted connections of all listeners, by the addresses of both ends. Safe for concurrent use.
type accepted struct {
	most int // from one address that is not of this host

	mu    sync.Mutex
	conns map[ends]net.Conn
	from  map[netip.Addr]int // how many, by the address of the peer; not those of this host
}

type ends struct{ remote, local string }

func newAccepted(most int) *accepted {
	return &accepted{most: most, conns: map[ends]net.Conn{}, from: map[netip.Addr]int{}}
}

func (c *accepted) wrap(l net.Listener) net.Listener { return &trackingListener{l, c} }

// cut closes the connection between two addresses. false: it came from no listener of ours.
func (c *accepted) cut(remote, local string) bool {
	c.mu.Lock()
	conn := c.conns[ends{remote, local}]
	c.mu.Unlock()
	if conn == nil {
		return false
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what the peer would not read is not kept for it
	}
	_ = conn.Close() // whatever it says, the connection is gone
	return true
}

// add returns the connection tracked; nil if there are too many from its address.
func (c *accepted) add(conn net.Conn) net.Conn {
	t := &trackedConn{Conn: conn, connections: c, ends: ends{conn.RemoteAddr().String(), conn.LocalAddr().String()}}
	if at, err := netip.ParseAddrPort(t.ends.remote); err == nil && !at.Addr().Unmap().IsLoopback() {
		t.from = at.Addr().Unmap()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.from.IsValid() {
		if c.from[t.from] >= c.most {
			return nil
		}
		c.from[t.from]++
	}
	c.conns[t.ends] = conn
	return t
}

func (c *accepted) remove(t *trackedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[t.ends] == t.Conn {
		delete(c.conns, t.ends)
	}
	if t.from.IsValid() {
		if c.from[t.from]--; c.from[t.from] == 0 {
			delete(c.from, t.from)
		}
	}
}

type trackingListener struct {
	net.Listener
	connections *accepted
}

// Accept returns the next connection. Those beyond the bound of their address are closed.
func (l *trackingListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if t := l.connections.add(conn); t != nil {
			return t, nil
		}
		_ = conn.Close() // nothing was said on it
	}
}

type trackedConn struct {
	net.Conn
	connections *accepted
	ends        ends
	from        netip.Addr // invalid: of this host
	closed      sync.Once
}

func (t *trackedConn) Close() error {
	t.closed.Do(func() { t.connections.remove(t) })
	return t.Conn.Close()
}
