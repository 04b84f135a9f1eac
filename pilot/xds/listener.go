package xds

import (
	"net"
	"sync"
)

// accepted are the accepted connections of all listeners, by the addresses of both ends. Safe for concurrent use.
type accepted struct {
	mu    sync.Mutex
	conns map[ends]net.Conn
}

type ends struct{ remote, local string }

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

type trackingListener struct {
	net.Listener
	connections *accepted
}

func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: conn, connections: l.connections, ends: ends{conn.RemoteAddr().String(), conn.LocalAddr().String()}}
	l.connections.mu.Lock()
	defer l.connections.mu.Unlock()
	if l.connections.conns == nil {
		l.connections.conns = map[ends]net.Conn{}
	}
	l.connections.conns[t.ends] = conn
	return t, nil
}

type trackedConn struct {
	net.Conn
	connections *accepted
	ends        ends
}

func (t *trackedConn) Close() error {
	t.connections.mu.Lock()
	if t.connections.conns[t.ends] == t.Conn {
		delete(t.connections.conns, t.ends)
	}
	t.connections.mu.Unlock()
	return t.Conn.Close()
}
