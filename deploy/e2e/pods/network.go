package pods

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Network is a bridge with pods on it. Its gateway is an address of the program itself, where it serves what all pods
// may call; every address that is no pod's goes there too, so that connecting to a service address has a route before
// the rules of the pod catch it.
type Network struct {
	gateway netip.Prefix
	home    namespace
	bridge  int
	pods    int
}

// NewNetwork makes a bridge whose gateway is the first address of the prefix. It must be called inside.
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

// bridgeAddr is a locally administered MAC address. A bridge without one of its own takes that of one of its ports,
// another one as ports come and go; pods that know the old one then lose the gateway until their ARP entry ends, half a
// minute later.
func bridgeAddr() net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01} }

// Gateway is the program's own address on the bridge.
func (n *Network) Gateway() netip.Addr { return n.gateway.Addr() }

// podAddr returns the MAC address of a pod: the same for the same IPv4 address. Pods that remember an address by ARP
// then reach whichever pod has it now. With another MAC address they would go on sending to the old one for as long as
// Linux trusts and then probes its entry: 8 to 10 s.
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

// disconnect removes the interface, both ends of it, at once.
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

// address sets the link's address and brings it up.
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

// Route has the program reach an address by way of a pod, which is to have it: AddAddress of a Pod.
func (n *Network) Route(addr, via netip.Addr) error {
	return n.home.within(n.home, func() error {
		to := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: n.bridge, Dst: to, Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("route %s by %s: %w", addr, via, err)
		}
		return nil
	})
}

// AddAddress adds an address to the program's own, which pods reach too. An address that it has already is no error.
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
