package lds

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Outbound generates the listeners for a sidecar's outgoing traffic. Each bind key is a partition, and so is
// virtualOutbound.
func (m *Listeners) Outbound(v *view.View, c cohort.Inputs) engine.Generator[BindKey] {
	return engine.Generator[BindKey]{
		All: func() []*envoy.Resource {
			l := m.newOutboundBuilder(v, c)
			for i := range l.scope.Egress {
				e := &l.scope.Egress[i]
				l.addEgress(l.egressBuilder(e), e.Services)
			}
			var out []*envoy.Resource
			for _, s := range l.builders {
				out = append(out, l.build(s))
			}
			return append(out, m.fixedListeners(v, c)...)
		},
		Affected: func(d *scope.Dirty) []BindKey { return affectedBindKeys(c, d) },
		Partitions: func(all []BindKey) func(BindKey) []*envoy.Resource {
			l := m.newOutboundBuilder(v, c)
			l.restrictTo(all)
			for i := range l.scope.Egress {
				o := l.egressBuilder(&l.scope.Egress[i])
				l.addEgress(o, o.relevantServices())
			}
			fixed := m.fixedListeners(v, c)
			return func(at BindKey) []*envoy.Resource {
				if s := l.builders[at]; s != nil {
					return []*envoy.Resource{l.build(s)}
				}
				name := names.Listener(at.Bind, at.Port)
				return slices.DeleteFunc(slices.Clone(fixed), func(r *envoy.Resource) bool { return r.Name != name })
			}
		},
		Locate: func(at BindKey) engine.Locator {
			own := names.Listener(at.Bind, at.Port)
			return func(name string) int { return strings.Compare(name, own) }
		},
	}
}

// affectedBindKeys returns the bind keys whose listeners may be dirty. A Sidecar's listeners are at its own addresses,
// on the ports of the services.
func affectedBindKeys(c cohort.Inputs, changes *scope.Dirty) []BindKey {
	if len(changes.Listeners) == 0 {
		return nil
	}
	var binds []string   // addresses at which services of any address may have a listener
	var proxies []uint32 // ports of HTTP proxies, which reach services of any port
	if c.Outbound.Interception == node.None {
		binds = append(binds, envoy.Loopback(c.Client.IPv4))
	}
	if s := c.Client.Sidecar; s != nil {
		for _, e := range s.Spec.(*networkingv1.Sidecar).Egress {
			if e.Bind != "" {
				binds = append(binds, e.Bind)
			} else if e.CaptureMode == networkingv1alpha3.CaptureMode_NONE {
				binds = append(binds, envoy.Loopback(c.Client.IPv4))
			} else if e.Port != nil { // its protocol may be HTTP if the service's is not
				binds = append(binds, envoy.Wildcard(c.Client.IPv4))
			}
			if protocols.Parse(e.Port.GetProtocol()) == protocols.HTTPProxy {
				proxies = append(proxies, e.Port.Number)
			}
		}
	}
	var list []BindKey
	seen := make(map[BindKey]struct{}, len(changes.Listeners))
	add := func(p BindKey) {
		if _, ok := seen[p]; !ok {
			seen[p] = struct{}{}
			list = append(list, p)
		}
	}
	for _, port := range proxies {
		for _, bind := range binds {
			add(bindKeyOf(bind, port))
		}
	}
	for _, p := range changes.Listeners {
		switch {
		case p.Address != "":
			add(bindKeyOf(p.Address, p.Port))
		case p.Wildcard:
			add(BindKey{envoy.Wildcard(c.Client.IPv4), p.Port})
		}
		if p.Address == "" {
			for _, bind := range binds {
				add(bindKeyOf(bind, p.Port))
			}
		}
	}
	return list
}

func (m *Listeners) newOutboundBuilder(v *view.View, c cohort.Inputs) *outboundBuilder {
	sc := v.ScopeOf(c.Client.Namespace, c.Client.Sidecar)
	return &outboundBuilder{
		listeners: m, view: v, scope: sc, cohort: c, builders: map[BindKey]*listenerBuilder{}, reservedPorts: map[uint32]bool{},
		context: outboundContext(v, c), fallback: v.Fallback(sc),
	}
}

// build makes the listener that a builder collected.
func (l *outboundBuilder) build(s *listenerBuilder) *envoy.Resource {
	k := outboundKey{proxyContext: l.context, bind: s.Bind, port: s.Port, bindsPort: s.bindsPort, route: s.route,
		chains: frozen.ListOf(s.chains...)}
	captured := !s.bindsPort
	if s.grpcWeb {
		k.http = protocols.GRPCWeb
	}
	k.dual = s.Bind == "0.0.0.0" && l.cohort.Client.IPv6
	k.matchHTTP = s.route != "" && !s.plain && (len(s.chains) > 0 || captured && s.wildcard)
	if !slices.ContainsFunc(s.chains, tcpChain.matchesAll) && (s.route == "" || captured && k.matchHTTP) {
		k.fallback = l.fallback
	}
	return l.listeners.outbound.Get(k)
}

// fixedListeners returns the listeners that do not depend on services.
func (m *Listeners) fixedListeners(v *view.View, c cohort.Inputs) []*envoy.Resource {
	env := outboundContext(v, c)
	var out []*envoy.Resource
	if p := cmp.Or(c.Outbound.HTTPProxyPort, uint32(v.Mesh().GetProxyHttpPort())); p != 0 {
		out = append(out, m.outbound.Get(outboundKey{proxyContext: env, bind: envoy.Loopback(c.Client.IPv4), port: p, bindsPort: true,
			route: names.HTTPProxyRoute}))
	}
	if c.Outbound.Interception != node.None {
		sc := v.ScopeOf(c.Client.Namespace, c.Client.Sidecar)
		k := virtualOutboundKey{
			proxyContext: env, bind: envoy.Wildcard(c.Client.IPv4), transparent: c.Outbound.Interception == node.TPROXY,
			dual:     c.Client.IPv4 && c.Client.IPv6,
			fallback: v.Fallback(sc),
		}
		if http := v.HTTPFallback(sc); http != k.fallback {
			k.http = http
		}
		out = append(out, m.virtualOutbound.Get(k))
	}
	return out
}
