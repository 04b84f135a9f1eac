package crd

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"
)

// If a busy connection is read whenever data arrives, each read returns little and costs a wake-up, decryption and
// HTTP/2 flow control. So there is a pause between two reads.
const (
	gatherPause = time.Millisecond
	gatherSize  = 64 << 10 // buffer size in bytes
)

// bufferedConn is a connection that reads large pieces. Only one goroutine may read it.
type bufferedConn struct {
	net.Conn
	in   *bufio.Reader
	last time.Time // time of the last read that did not fill the buffer
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// gather wraps a dialer so that its connections are bufferedConns.
func gather(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		g := &bufferedConn{Conn: conn}
		g.in = bufio.NewReaderSize(refill{g}, gatherSize)
		return g, nil
	}
}

// Read returns buffered data, or reads after the pause.
func (g *bufferedConn) Read(p []byte) (int, error) { return g.in.Read(p) }

type refill struct{ *bufferedConn }

// Read reads from the connection.
func (r refill) Read(p []byte) (int, error) {
	if since := time.Since(r.last); since < gatherPause {
		time.Sleep(gatherPause - since)
	}
	n, err := r.Conn.Read(p)
	if n < len(p) {
		r.last = time.Now()
	}
	return n, err
}

// chunks reads with a buffer that grows with the traffic, because each read lets HTTP/2 allow the server to send more.
// A stream with little traffic frees the buffer.
type chunks struct {
	from  io.Reader
	space []byte
	left  []byte // rest of the last chunk
	full  bool   // the last chunk filled the buffer
	idle  bool   // the last chunk took long to arrive
}

const (
	chunkMin  = 4 << 10
	chunkMax  = 128 << 10
	chunkIdle = time.Second
)

// Read returns the rest of the last chunk, or reads the next one.
func (c *chunks) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		size := max(len(c.space), chunkMin)
		if c.full {
			size = min(2*size, chunkMax)
		} else if c.idle {
			size = chunkMin
		}
		if size != len(c.space) {
			c.space = make([]byte, size)
		}
		began := time.Now()
		n, err := c.from.Read(c.space)
		if n == 0 {
			return 0, err
		}
		c.left, c.full, c.idle = c.space[:n], n == size, time.Since(began) > chunkIdle
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}
