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
	// Redirect hands all TCP traffic of the pod, both ways, to the ports of a sidecar.
	Redirect bool
	// Direct are outbound ports that are left alone: where the agent beside the sidecar calls, which has no mark.
	Direct []uint16
}

// Pod is a network namespace with an address.
type Pod struct {
	spec Spec
	home namespace
	ns   namespace
	link string // the bridge's end of its interface
}

// Add makes a pod.
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
		_ = p.Close() // the first error says more
		return nil, fmt.Errorf("pod %s: %w", s.Name, err)
	}
	return p, nil
}

// Name is the pod's name.
func (p *Pod) Name() string { return p.spec.Name }

// Addr is the pod's address.
func (p *Pod) Addr() netip.Addr { return p.spec.Addr }

// DialContext connects as a program in the pod would. The address must be literal: a pod has no resolver.
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

// Do calls fn on a thread that is in the pod: the sockets that it opens belong there.
func (p *Pod) Do(fn func() error) error { return p.ns.within(p.home, fn) }

// Start starts the command in the pod.
func (p *Pod) Start(cmd *exec.Cmd) error {
	return p.ns.within(p.home, cmd.Start)
}

// Close takes the pod off the network at once, so that another can have its address, and lets go of its namespace. The
// kernel keeps that, with its addresses, until the last socket in it has gone: one whose peer does not answer any more
// stays for minutes.
func (p *Pod) Close() error {
	var err error
	if p.link != "" {
		err = disconnect(p.home, p.link)
	}
	return errors.Join(err, p.ns.close())
}

// AddAddress adds an address to the pod, which is reached where a route leads to the pod.
func (p *Pod) AddAddress(addr netip.Addr) error {
	return p.ns.within(p.home, func() error { return ownAddress(addr) })
}
