package crd

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"
)

// A connection that is read while more is on its way is read again and again for a little each time, and every time
// costs wake-ups, decryption, and words of HTTP/2 that more may come. So between two reads of a busy connection there
// is a pause.
const (
	gatherPause = time.Millisecond
	gatherSize  = 64 << 10 // what is read at once
)

// gathered is a connection that reads much at once. One goroutine reads it.
type gathered struct {
	net.Conn
	in   *bufio.Reader
	last time.Time // when something was last read that was less than could be
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// gather makes the connections of a dialer such ones.
func gather(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		g := &gathered{Conn: conn}
		g.in = bufio.NewReaderSize(refill{g}, gatherSize)
		return g, nil
	}
}

// Read reads what came, and what comes within the pause.
func (g *gathered) Read(p []byte) (int, error) { return g.in.Read(p) }

type refill struct{ *gathered }

// Read asks the connection.
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

// chunks reads more at once the more there is: with every answer to a read, HTTP/2 allows the server to send
// more. A stream with little traffic frees the space.
type chunks struct {
	from  io.Reader
	space []byte
	left  []byte // of the last chunk
	full  bool   // it took all the space
	idle  bool   // it was long in coming
}

const (
	chunkMin  = 4 << 10
	chunkMax  = 128 << 10
	chunkIdle = time.Second
)

// Read returns what is left, or reads on.
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
