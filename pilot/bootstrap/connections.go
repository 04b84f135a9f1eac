package bootstrap

import (
	"net"
	"net/netip"
	"sync"
)

// perAddress bounds the connections that a listener has from one address. It closes what is more. Addresses of this
// host are not bounded.
type perAddress struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[netip.Addr]int
}

func newPerAddress(l net.Listener, most int) *perAddress {
	return &perAddress{Listener: l, most: most, open: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within the bound.
func (p *perAddress) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err != nil || peer.Addr().Unmap().IsLoopback() {
			return conn, nil
		}
		at := peer.Addr().Unmap()
		p.mu.Lock()
		within := p.open[at] < p.most
		if within {
			p.open[at]++
		}
		p.mu.Unlock()
		if within {
			return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { p.leave(at) })}, nil
		}
		_ = conn.Close() // whatever it says, the connection is gone
	}
}

func (p *perAddress) leave(at netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[at]--; p.open[at] == 0 {
		delete(p.open, at)
	}
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
