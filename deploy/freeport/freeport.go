package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Pick returns a TCP port of a host on which nothing listens. The port is below those that the kernel gives to outgoing
// connections and to listeners that ask for any, so no other program is given it until its own listens there.
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
