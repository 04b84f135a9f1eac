package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// claimTime is for how long a port is not picked again. Programs take much less time to listen on their ports.
const claimTime = 10 * time.Minute

// Pick returns a TCP port of a host on which nothing listens. The kernel gives outgoing connections, and listeners
// that ask for any port, higher ports. For claimTime Pick does not return the port again while this process runs,
// neither here nor in another process of the network namespace. So no other program is given this port before it is
// used.
func Pick(ctx context.Context, host string) (string, error) {
	const lowest, highest = 20000, 32000
	var err error
	for range 1000 {
		port := strconv.Itoa(lowest + rand.IntN(highest-lowest))
		if err = pick(ctx, host, port); err == nil {
			return port, nil
		}
	}
	return "", fmt.Errorf("pick a free port: %w", err)
}

// pick claims a port. The error says why the port cannot be picked.
func pick(ctx context.Context, host, port string) error {
	// An abstract socket belongs to the network namespace, as ports do, and vanishes with its process.
	claim, err := new(net.ListenConfig).Listen(ctx, "unix", "@istiod-lite/freeport/"+port)
	if err != nil {
		return fmt.Errorf("port %s is claimed: %w", port, err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return errors.Join(err, claim.Close())
	}
	time.AfterFunc(claimTime, func() { _ = claim.Close() })
	return nil
}
