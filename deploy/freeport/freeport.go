package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Pick returns a TCP port of a host on which nothing listens. The kernel gives outgoing connections, and listeners
// that ask for any port, higher ports. So no other program is given this port before it is used.
func Pick(ctx context.Context, host string) (string, error) {
	const lowest, highest = 20000, 32000
	var err error
	for range 100 {
		port := strconv.Itoa(lowest + rand.IntN(highest-lowest))
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port)); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("pick a free port: %w", err)
}
