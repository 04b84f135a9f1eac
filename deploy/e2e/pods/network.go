package pods

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Network is a bridge with pods. Its gateway is an address of the program itself, on which it serves all pods. Every
// address without a pod is routed there too, so a connection to a service address has a route before the rules of the
// pod redirect it.
type Network struct {
	gateway netip.Prefix
	home    namespace
	bridge  int
	pods    int
}

// NewNetwork creates a bridge whose gateway is the first address of the prefix. It must be called inside.
func NewNetwork(prefix netip.Prefix) (*Network, error) {
	home, err := current()
	if err != nil {
		return nil, err
	}
	n := &Network{gateway: netip.PrefixFrom(prefix.Masked().Addr().Next(), prefix.Bits()), home: home}
	err = home.within(home, func() error {
		if err := up("lo"); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = "pods", bridgeAddr()
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("make bridge: %w", err)
		}
		if err := address("pods", n.gateway); err != nil {
			return err
		}
		link, err := netlink.LinkByName("pods")
		if err != nil {
			return fmt.Errorf("find bridge: %w", err)
		}
		n.bridge = link.Attrs().Index
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// bridgeAddr is a locally administered MAC address. A bridge without its own address takes the one of a port, which
// changes as ports come and go. Pods with the old one then lose the gateway until their ARP entry expires, half a
// minute later.
func bridgeAddr() net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01} }

// Gateway returns the program's own address on the bridge.
func (n *Network) Gateway() netip.Addr { return n.gateway.Addr() }

// podAddr returns the MAC address of a pod, which depends only on its IPv4 address. Pods with an ARP entry then reach
// the current pod with that address. With another MAC address they would use the old one until Linux has checked the
// entry, which takes 8 to 10 s.
func podAddr(ip netip.Addr) net.HardwareAddr {
	four := ip.As4()
	return append(net.HardwareAddr{0x02, 0x01}, four[:]...)
}

// connect adds an interface on the bridge to the pod's namespace. It returns the name of the bridge's end.
func (n *Network) connect(ns namespace, addr netip.Addr) (string, error) {
	n.pods++
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = fmt.Sprintf("pod%d", n.pods), n.bridge
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.f.Fd()), PeerHardwareAddr: podAddr(addr)}
	err := n.home.within(n.home, func() error {
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make interface: %w", err)
		}
		return up(attrs.Name)
	})
	if err != nil {
		return "", err
	}
	return attrs.Name, ns.within(n.home, func() error {
		if err := up("lo"); err != nil {
			return err
		}
		if err := address("eth0", netip.PrefixFrom(addr, n.gateway.Bits())); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Gw: n.Gateway().AsSlice()}); err != nil {
			return fmt.Errorf("add default route: %w", err)
		}
		return nil
	})
}

// disconnect removes both ends of the interface at once.
func disconnect(home namespace, link string) error {
	return home.within(home, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find %s: %w", link, err)
		}
		if err := netlink.LinkDel(l); err != nil {
			return fmt.Errorf("remove %s: %w", link, err)
		}
		return nil
	})
}

// address sets the address of a link and enables it.
func address(name string, p netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: mask}}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, p, err)
	}
	return up(name)
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}

// Route routes an address through a pod. The pod needs the address too: see AddAddress of Pod.
func (n *Network) Route(addr, via netip.Addr) error {
	return n.home.within(n.home, func() error {
		to := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: n.bridge, Dst: to, Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("route %s by %s: %w", addr, via, err)
		}
		return nil
	})
}

// AddAddress adds an address of the program, which pods can reach. Adding it twice is no error.
func (n *Network) AddAddress(addr netip.Addr) error {
	return n.home.within(n.home, func() error { return ownAddress(addr) })
}

// ownAddress adds an address to the calling thread's namespace.
func ownAddress(addr netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	all := net.CIDRMask(addr.BitLen(), addr.BitLen())
	if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: all}}); err != nil {
		return fmt.Errorf("add the address %s: %w", addr, err)
	}
	return nil
}
