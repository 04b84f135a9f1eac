package envoyfilter

import (
	"cmp"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// listener applies patches to a listener and its parts.
type listener struct {
	list   []patch
	target feature.PatchTarget
	*listenerv3.Listener
	out outcome
}

// run applies the patches, and reports whether the listener stays.
func (l listener) run() bool {
	if slices.ContainsFunc(l.list, func(p patch) bool {
		return p.GetApplyTo() == toRoutes || p.GetApplyTo() == toHost || p.GetApplyTo() == toRoute
	}) {
		for _, c := range l.chains() {
			l.inlineRoutes(c)
		}
	}
	for i, p := range l.of(toListener) {
		if !l.matches(p) {
			continue
		}
		if p.op() == remove {
			l.out.set(i, nil)
			return false
		}
		name := l.Name
		l.out.set(i, p.mergeInto(l.Listener))
		l.Name = name
	}
	l.ListenerFilters = edit(l.ListenerFilters, l.of(toListenerFilter), l.out, l.matches, last)
	l.FilterChains = slices.DeleteFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return !l.chain(c) })
	if c := l.DefaultFilterChain; c != nil && !l.chain(c) {
		l.DefaultFilterChain = nil
	}
	for i, p := range l.of(toChain) {
		if p.op() == add && l.matches(p) {
			l.out.set(i, nil)
			l.FilterChains = append(l.FilterChains, proto.Clone(p.value).(*listenerv3.FilterChain))
		}
	}
	return true
}

// of yields the patches of one target with their indexes in the list.
func (l listener) of(to networkingv1alpha3.EnvoyFilter_ApplyTo) func(yield func(int, patch) bool) {
	return func(yield func(int, patch) bool) {
		for i, p := range l.list {
			if p.GetApplyTo() == to && !yield(i, p) {
				return
			}
		}
	}
}

// chains returns all filter chains.
func (l listener) chains() []*listenerv3.FilterChain {
	if l.DefaultFilterChain == nil {
		return l.FilterChains
	}
	return append(slices.Clip(l.FilterChains), l.DefaultFilterChain)
}

// matches reports whether a patch is for the listener. A port also matches a virtual listener, unless the patch is for
// the listener itself: its chains are for the ports of other listeners.
func (l listener) matches(p patch) bool {
	m := p.GetMatch().GetListener()
	if m.GetName() != "" && m.GetName() != l.Name {
		return false
	}
	port := m.GetPortNumber()
	if port == 0 || l.GetAddress().GetSocketAddress().GetPortValue() == port {
		return true
	}
	return l.virtual() && p.GetApplyTo() != toListener
}

// virtual reports whether connections to all ports are redirected to the listener.
func (l listener) virtual() bool {
	return l.Name == names.VirtualInbound || l.Name == names.VirtualOutbound
}

// matchesChain reports whether a patch is for a filter chain of the listener.
func (l listener) matchesChain(p patch, c *listenerv3.FilterChain) bool {
	if !l.matches(p) {
		return false
	}
	m := p.GetMatch().GetListener()
	has, want := c.GetFilterChainMatch(), m.GetFilterChain()
	if port := m.GetPortNumber(); port != 0 && l.virtual() && has.GetDestinationPort().GetValue() != port {
		return false
	}
	switch {
	case want == nil:
		return true
	case want.Name != "" && want.Name != c.Name,
		want.Sni != "" && !slices.Contains(has.GetServerNames(), want.Sni),
		want.TransportProtocol != "" && want.TransportProtocol != has.GetTransportProtocol(),
		want.TransportSocket != "" && want.TransportSocket != cmp.Or(c.GetTransportSocket().GetName(), "envoy.transport_sockets.raw_buffer"),
		want.DestinationPort != 0 && want.DestinationPort != has.GetDestinationPort().GetValue():
		return false
	case want.ApplicationProtocols != "":
		for protocol := range strings.SplitSeq(want.ApplicationProtocols, ",") {
			if !slices.Contains(has.GetApplicationProtocols(), strings.TrimSpace(protocol)) {
				return false
			}
		}
	}
	return true
}

// chain applies the patches of a filter chain, and reports whether it stays.
func (l listener) chain(c *listenerv3.FilterChain) bool {
	for i, p := range l.of(toChain) {
		if p.op() == add || !l.matchesChain(p, c) {
			continue
		}
		if p.op() == remove {
			l.out.set(i, nil)
			return false
		}
		l.out.set(i, p.mergeInto(c))
	}
	applies := func(p patch) bool { return l.matchesChain(p, c) }
	c.Filters = edit(c.Filters, l.of(toNetworkFilter), l.out, applies, networkPlace)
	for _, p := range l.of(toHTTPFilter) {
		if applies(p) {
			l.connectionManagers(c, func(name string, m *hcmv3.HttpConnectionManager) {
				m.HttpFilters = edit(m.HttpFilters, l.of(toHTTPFilter), l.out, func(p patch) bool {
					want := p.GetMatch().GetListener().GetFilterChain().GetFilter().GetName()
					return applies(p) && (want == "" || want == name)
				}, httpPlace)
			})
			break
		}
	}
	return true
}

// connectionManagers changes the connection managers of a chain. change gets the name of the filter.
func (l listener) connectionManagers(c *listenerv3.FilterChain, change func(name string, m *hcmv3.HttpConnectionManager)) {
	for _, f := range c.Filters {
		m := &hcmv3.HttpConnectionManager{}
		if !f.GetTypedConfig().MessageIs(m) || f.GetTypedConfig().UnmarshalTo(m) != nil {
			continue
		}
		was := proto.Clone(m)
		if change(f.Name, m); !proto.Equal(was, m) {
			f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Any(m)}
		}
	}
}

// inlineRoutes applies patches to the routes inside the connection managers of a chain.
func (l listener) inlineRoutes(c *listenerv3.FilterChain) {
	l.connectionManagers(c, func(_ string, m *hcmv3.HttpConnectionManager) {
		rc := m.GetRouteConfig()
		if rc == nil {
			return
		}
		t := feature.PatchTarget{Type: envoy.RouteType, Direction: l.target.Direction, Name: rc.Name}
		applies := func(p patch) bool { return p.matchesRoutes(t) }
		for i, p := range l.of(toRoutes) {
			if applies(p) {
				l.out.set(i, p.mergeInto(rc))
			}
		}
		r := routes{l.list, l.out}
		kept := rc.VirtualHosts[:0]
		for _, h := range rc.VirtualHosts {
			if r.hostIf(h, func(p patch) bool { return applies(p) && p.mayMatchHost(h.Name) }) {
				kept = append(kept, h)
			}
		}
		rc.VirtualHosts = kept
		for i, p := range l.of(toHost) {
			if p.op() == add && applies(p) {
				l.out.set(i, nil)
				rc.VirtualHosts = append(rc.VirtualHosts, r.added(p))
			}
		}
	})
}
