package pods

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Dial connects to a fixed or chosen address.
type Dial func(ctx context.Context) (net.Conn, error)

// Relay accepts connections until the context ends, and joins each to a connection from dial. It owns the listener.
func Relay(ctx context.Context, l net.Listener, dial Dial) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		in, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("relay %s: %w", l.Addr(), err)
		}
		conns.Go(func() { splice(ctx, in, dial) })
	}
}

// splice copies in both directions until both sides or the context end.
func splice(ctx context.Context, in net.Conn, dial Dial) {
	defer in.Close()
	out, err := dial(ctx)
	if err != nil {
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
	var ways sync.WaitGroup
	ways.Go(func() { copyHalf(out, in) })
	ways.Go(func() { copyHalf(in, out) })
	ways.Wait()
}

// copyHalf also passes the end of a stream on, so that half-closed connections work.
func copyHalf(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	dst.Close()
}
