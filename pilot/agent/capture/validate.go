package capture

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
)

// ownAddress returns an address of this pod. It prefers IPv4.
func ownAddress(v6 bool) (netip.Addr, error) {
	families := []int{netlink.FAMILY_V4}
	if v6 {
		families = append(families, netlink.FAMILY_V6)
	}
	for _, family := range families {
		addrs, err := netlink.AddrList(nil, family)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("failed to list the addresses of this machine: %w", err)
		}
		for _, a := range addrs {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.IsGlobalUnicast() && ip != netip.MustParseAddr("::6") {
				return ip.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, errors.New("this pod has no address")
}

// checkArrival returns nil if a connection to an address arrives at a port of this machine.
func checkArrival(ctx context.Context, to netip.AddrPort, port uint16) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("failed to validate the rules: %w", err)
	}
	defer l.Close()
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("failed to validate the rules: %w", err)
	}
	for ctx.Err() == nil {
		if loopsBack(ctx, l, to, secret) {
			return nil
		}
		select { // a CNI plugin may still write the rules
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%w: a connection to %s did not arrive at port %d", ErrNotCaptured, to, port)
}

// loopsBack reports whether data written to an address is read from the listener. A successful connect is not enough,
// because the kernel completes a connection before it is accepted.
func loopsBack(ctx context.Context, l net.Listener, to netip.AddrPort, secret []byte) bool {
	deadline, _ := ctx.Deadline()
	d := net.Dialer{Timeout: time.Second}
	out, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return false
	}
	defer out.Close()
	if _, err := out.Write(secret); err != nil {
		return false
	}
	accepting, ok := l.(*net.TCPListener)
	if !ok || accepting.SetDeadline(earlier(deadline, time.Now().Add(time.Second))) != nil {
		return false
	}
	in, err := l.Accept()
	if err != nil {
		return false
	}
	defer in.Close()
	received := make([]byte, len(secret))
	if in.SetDeadline(earlier(deadline, time.Now().Add(time.Second))) != nil {
		return false
	}
	_, err = io.ReadFull(in, received)
	return err == nil && string(received) == string(secret)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
