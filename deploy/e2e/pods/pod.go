package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
)

// Spec describes a pod.
type Spec struct {
	Name string
	Addr netip.Addr
	// Redirect redirects all TCP traffic of the pod, in both directions, to the ports of a sidecar.
	Redirect bool
	// Direct are outbound ports that are not redirected. The agent of the sidecar, which has no mark, connects to them.
	Direct []uint16
}

// Pod is a network namespace with an address.
type Pod struct {
	spec Spec
	home namespace
	ns   namespace
	link string // the bridge's end of its interface
}

// Add creates a pod.
func (n *Network) Add(s Spec) (*Pod, error) {
	ns, err := create(n.home)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", s.Name, err)
	}
	p := &Pod{spec: s, home: n.home, ns: ns}
	if p.link, err = n.connect(ns, s.Addr); err == nil && s.Redirect {
		err = ns.within(n.home, func() error { return redirect(s.Direct) })
	}
	if err != nil {
		_ = p.Close() // the first error is more useful
		return nil, fmt.Errorf("pod %s: %w", s.Name, err)
	}
	return p, nil
}

// Name returns the name of the pod.
func (p *Pod) Name() string { return p.spec.Name }

// Addr returns the address of the pod.
func (p *Pod) Addr() netip.Addr { return p.spec.Addr }

// DialContext connects as a program in the pod would. The address must be literal, because a pod has no resolver.
func (p *Pod) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, fmt.Errorf("dial from pod %s: %w", p.Name(), err)
	}
	var conn net.Conn
	err := p.ns.within(p.home, func() error {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Listen listens as a program in the pod would.
func (p *Pod) Listen(addr string) (net.Listener, error) {
	var l net.Listener
	err := p.ns.within(p.home, func() error {
		var err error
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
		return err
	})
	return l, err
}

// Do calls fn on a thread in the pod. Sockets that fn opens belong to the pod.
func (p *Pod) Do(fn func() error) error { return p.ns.within(p.home, fn) }

// Start starts the command in the pod.
func (p *Pod) Start(cmd *exec.Cmd) error {
	return p.ns.within(p.home, cmd.Start)
}

// Close removes the pod from the network at once, so that another pod can have its address. The kernel keeps the
// namespace until its last socket is gone, which takes minutes if a peer no longer answers.
func (p *Pod) Close() error {
	var err error
	if p.link != "" {
		err = disconnect(p.home, p.link)
	}
	return errors.Join(err, p.ns.close())
}

// AddAddress adds an address to the pod. Other pods reach it if a route leads to the pod.
func (p *Pod) AddAddress(addr netip.Addr) error {
	return p.ns.within(p.home, func() error { return ownAddress(addr) })
}
