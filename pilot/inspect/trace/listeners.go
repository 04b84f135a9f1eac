package trace

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// listenerFor returns the listener that takes a connection, and why. It returns nil if there is none.
func listenerFor(all []*listenerv3.Listener, r Request) (*listenerv3.Listener, string) {
	byName := func(name string) *listenerv3.Listener {
		i := slices.IndexFunc(all, func(l *listenerv3.Listener) bool { return l.GetName() == name })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	if r.Proxyless {
		at := net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
		if r.Inbound {
			at = names.ProxylessPort(r.Port)
		}
		if l := byName(at); l != nil {
			return l, "the application asks for it by this name"
		}
		return nil, "there is no listener of the name " + at + ", for which the application asks"
	}
	if r.Inbound {
		if l := byName(names.VirtualInbound); l != nil && !r.Gateway {
			return l, "all connections to the workload come here"
		}
	}
	var anyAddress, oneAddress *listenerv3.Listener
	var others []string // addresses of listeners of the port
	for _, l := range all {
		if l.GetName() == names.VirtualInbound || l.GetName() == names.VirtualOutbound || (l.GetUdpListenerConfig() != nil) != r.HTTP3 {
			continue
		}
		for _, at := range append([]*corev3.Address{l.GetAddress()}, additional(l)...) {
			switch s := at.GetSocketAddress(); {
			case s.GetPortValue() != r.Port:
			case r.Address != "" && s.GetAddress() == r.Address:
				return l, "it is for the address " + net.JoinHostPort(r.Address, strconv.Itoa(int(r.Port)))
			case s.GetAddress() == "0.0.0.0" || s.GetAddress() == "::":
				anyAddress = l
			default:
				others, oneAddress = append(others, s.GetAddress()), cmp.Or(oneAddress, l)
			}
		}
	}
	switch {
	case anyAddress != nil && r.Address == "":
		return anyAddress, fmt.Sprintf("it is for port %d at every address", r.Port)
	case anyAddress != nil:
		return anyAddress, fmt.Sprintf("it is for port %d at every address, and none is for %s alone", r.Port, r.Address)
	case r.Gateway && len(others) > 0 && r.Address == "":
		return oneAddress, fmt.Sprintf("it is for port %d of an address of its own, and which address is called is not known", r.Port)
	case r.HTTP3 && !r.Gateway:
		return nil, "only gateways take QUIC"
	case r.HTTP3:
		return nil, fmt.Sprintf("no listener takes QUIC to port %d: no server there takes HTTP/3, or the gateway's Service does not "+
			"have the port for UDP", r.Port)
	case r.Gateway && len(others) > 0:
		return nil, fmt.Sprintf("no listener takes connections to port %d of this address: servers bind it at %s alone", r.Port,
			strings.Join(others, ", "))
	case r.Gateway:
		return nil, fmt.Sprintf("no listener takes connections to port %d", r.Port)
	}
	if l := byName(names.VirtualOutbound); l != nil {
		at := r.Address
		if at == "" {
			at = "*"
		}
		return l, fmt.Sprintf("no listener is for %s, so that the one for all other connections takes it",
			net.JoinHostPort(at, strconv.Itoa(int(r.Port))))
	}
	return nil, fmt.Sprintf("no listener takes connections to port %d, and the proxy does not intercept", r.Port)
}

// Binds reports whether a listener is for exactly that address and port.
func (c Config) Binds(address string, port uint32) bool {
	listeners, err := envoy.Decode[listenerv3.Listener](c[envoy.ListenerType])
	return err == nil && slices.ContainsFunc(listeners, func(l *listenerv3.Listener) bool {
		return slices.ContainsFunc(append(additional(l), l.GetAddress()), func(at *corev3.Address) bool {
			return at.GetSocketAddress().GetAddress() == address && at.GetSocketAddress().GetPortValue() == port
		})
	})
}

func additional(l *listenerv3.Listener) (list []*corev3.Address) {
	return lists.Map(l.GetAdditionalAddresses(), func(a *listenerv3.AdditionalAddress) *corev3.Address { return a.GetAddress() })
}
