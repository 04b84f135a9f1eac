package xds

import (
	"net"
	"net/netip"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/quota"
)

// accepted tracks the connections of all listeners by their two addresses. It is safe for concurrent use.
type accepted struct {
	bound *quota.Counter[netip.Addr] // connections of each address

	mu    sync.Mutex
	conns map[ends]net.Conn
}

type ends struct{ remote, local string }

func newAccepted(most int) *accepted {
	return &accepted{bound: quota.NewCounter[netip.Addr](most), conns: map[ends]net.Conn{}}
}

func (c *accepted) wrap(l net.Listener) net.Listener {
	return quota.Listen(&trackingListener{l, c}, c.bound)
}

// cut closes the connection between two addresses. It returns false if no wrapped listener has accepted it.
func (c *accepted) cut(remote, local string) bool {
	c.mu.Lock()
	conn := c.conns[ends{remote, local}]
	c.mu.Unlock()
	if conn == nil {
		return false
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // discard data that the peer does not read
	}
	_ = conn.Close() // the connection is closed despite an error
	return true
}

func (c *accepted) add(conn net.Conn) net.Conn {
	t := &trackedConn{Conn: conn, connections: c, ends: ends{conn.RemoteAddr().String(), conn.LocalAddr().String()}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[t.ends] = conn
	return t
}

func (c *accepted) remove(t *trackedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[t.ends] == t.Conn {
		delete(c.conns, t.ends)
	}
}

type trackingListener struct {
	net.Listener
	connections *accepted
}

// Accept returns the next connection.
func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.connections.add(conn), nil
}

type trackedConn struct {
	net.Conn
	connections *accepted
	ends        ends
}

func (t *trackedConn) Close() error {
	t.connections.remove(t)
	return t.Conn.Close()
}
