package crd

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// Nothing is lost or changed on the way, whatever the reads are like, and the error comes behind what was read.
func TestChunks(t *testing.T) {
	want := noise(1 << 20)
	for name, from := range map[string]io.Reader{
		"all at once": bytes.NewReader(want), "halves": iotest.HalfReader(bytes.NewReader(want)),
		"error with data": iotest.DataErrReader(bytes.NewReader(want)),
		"one by one":      iotest.OneByteReader(bytes.NewReader(want)),
	} {
		got, err := io.ReadAll(&chunks{from: from})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
	}
	if _, err := io.ReadAll(&chunks{from: iotest.TimeoutReader(bytes.NewReader(want))}); err != iotest.ErrTimeout {
		t.Errorf("got %v, want the error of what is read", err)
	}
}

// The space grows with what comes and goes when little comes.
func TestChunksGiveSpaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		c := &chunks{from: bytes.NewReader(noise(1 << 20))}
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			t.Fatal(err)
		}
		if len(c.space) != chunkMax {
			t.Fatalf("%d bytes of space, want %d", len(c.space), chunkMax)
		}
		c.from = here
		for range 3 {
			go func() {
				time.Sleep(time.Minute)
				_, _ = there.Write([]byte("x"))
			}()
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.space) != chunkMin {
			t.Fatalf("%d bytes of space, want %d", len(c.space), chunkMin)
		}
	})
}

// What comes in many small pieces is read in few, and what comes alone is not held up.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pieces := noise(4096)
		conn, err := gather(func(context.Context, string, string) (net.Conn, error) {
			return &drip{Reader: bytes.NewReader(pieces)}, nil
		})(t.Context(), "", "")
		must.Succeed(t, err)
		began := time.Now()
		first := make([]byte, 1)
		if _, err := conn.Read(first); err != nil || time.Since(began) != 0 {
			t.Fatalf("the first byte took %v, %v", time.Since(began), err)
		}
		rest, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(append(first, rest...), pieces) {
			t.Fatalf("%d bytes, %v", len(rest), err)
		}
		if took := time.Since(began); took > 50*gatherPause {
			t.Errorf("%d pieces took %v: they were not bufferedConn", len(pieces), took)
		}
		time.Sleep(time.Second)
		began = time.Now()
		if _, err := conn.Read(first); err != io.EOF || time.Since(began) != 0 {
			t.Errorf("the end took %v, %v", time.Since(began), err)
		}
	})
}

// drip is a connection to which a byte comes every ten microseconds.
type drip struct {
	net.Conn
	*bytes.Reader
	since time.Time
	given int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.since.IsZero() {
		d.since = time.Now()
	}
	there := 1 + int(time.Since(d.since)/(10*time.Microsecond)) - d.given
	n, err := d.Reader.Read(p[:max(1, min(len(p), there))])
	d.given += n
	return n, err
}
