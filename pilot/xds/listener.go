package xds

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// accepted tracks the connections of all listeners by their two addresses. It is safe for concurrent use.
type accepted struct {
	bound *quota.Counter[netip.Addr] // connections of each address

	mu    sync.Mutex
	conns map[ends]*trackedConn
}

type ends struct{ remote, local string }

func newAccepted(most int) *accepted {
	return &accepted{bound: quota.NewCounter[netip.Addr](most), conns: map[ends]*trackedConn{}}
}

func (c *accepted) wrap(l net.Listener) net.Listener {
	return quota.Listen(&trackingListener{l, c}, c.bound)
}

// find returns the connection between two addresses, or nil if no wrapped listener has accepted it.
func (c *accepted) find(remote, local string) *trackedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[ends{remote, local}]
}

func (c *accepted) add(conn net.Conn) net.Conn {
	t := &trackedConn{Conn: conn, connections: c, ends: ends{conn.RemoteAddr().String(), conn.LocalAddr().String()}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[t.ends] = t
	return t
}

func (c *accepted) remove(t *trackedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[t.ends] == t {
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

// trackedConn is an accepted connection. Its methods may be called on nil, for a connection that is not tracked.
type trackedConn struct {
	net.Conn
	connections *accepted
	ends        ends
	written     atomic.Int64 // bytes that the socket has taken, of all streams
}

// Write counts what the connection takes.
func (t *trackedConn) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.written.Add(int64(n))
	return n, err
}

func (t *trackedConn) Close() error {
	t.connections.remove(t)
	return t.Conn.Close()
}

// taken returns a number that grows with what the peer takes.
func (t *trackedConn) taken() int64 {
	if t == nil {
		return 0
	}
	return t.written.Load() + acknowledged(t.Conn)
}

// cut closes the connection and discards its unread data. It returns false for nil.
func (t *trackedConn) cut() bool {
	if t == nil {
		return false
	}
	if tcp, ok := t.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = t.Close() // the connection is closed despite an error
	return true
}

// watchdog calls a function when a peer has taken nothing for a time while a message is being sent to it. What the peer
// takes of earlier messages or of other streams resets the time, because the message waits behind them.
type watchdog struct {
	conn  *trackedConn // may be nil
	grace time.Duration
	timer *time.Timer
	begun atomic.Bool  // the time of the message has begun
	taken atomic.Int64 // bytes that the connection had taken when the time began
}

// settleDivisor divides the grace: most messages need less than the quotient, and the watchdog begins after it. Asking
// the kernel what the peer has acknowledged costs as much as sending a small message.
const settleDivisor = 8

func newWatchdog(conn *trackedConn, grace time.Duration, log *slog.Logger, stalled func()) *watchdog {
	w := &watchdog{conn: conn, grace: grace}
	w.timer = time.AfterFunc(time.Hour, func() {
		if now := conn.taken(); w.taken.Swap(now) != now || !w.begun.Swap(true) {
			w.timer.Reset(grace)
			return
		}
		safe.Run(log, "xds watchdog", stalled)
	})
	return w
}

// start waits until the time of a message begins.
func (w *watchdog) start() {
	w.begun.Store(false)
	w.timer.Reset(w.grace / settleDivisor)
}

func (w *watchdog) stop() { w.timer.Stop() }
