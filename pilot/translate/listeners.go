package translate

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
)

// listenerGenerator generates the listeners for a sidecar's outgoing traffic. Each bind key is a partition;
// virtualOutbound is one too.
func listenerGenerator(c cohort.Inputs) generator[bindKey] {
	return generator[bindKey]{
		all: func(v *view) []*envoy.Resource {
			l := v.newOutboundBuilder(c)
			for i := range l.scope.Egress {
				e := &l.scope.Egress[i]
				l.addEgress(l.egressBuilder(e), e.Services)
			}
			var out []*envoy.Resource
			for _, s := range l.builders {
				out = append(out, l.build(s))
			}
			return append(out, v.fixedListeners(c)...)
		},
		affected: func(changes *scope.Dirty) []bindKey { return affectedBindKeys(c, changes) },
		partitions: func(v *view, all []bindKey) func(bindKey) []*envoy.Resource {
			l := v.newOutboundBuilder(c)
			l.restrictTo(all)
			for i := range l.scope.Egress {
				o := l.egressBuilder(&l.scope.Egress[i])
				l.addEgress(o, o.relevantServices())
			}
			fixed := v.fixedListeners(c)
			return func(at bindKey) []*envoy.Resource {
				if s := l.builders[at]; s != nil {
					return []*envoy.Resource{l.build(s)}
				}
				name := names.Listener(at.bind, at.port)
				return slices.DeleteFunc(slices.Clone(fixed), func(r *envoy.Resource) bool { return r.Name != name })
			}
		},
		locate: func(at bindKey) locator {
			name := names.Listener(at.bind, at.port)
			return func(r *envoy.Resource) int { return strings.Compare(r.Name, name) }
		},
	}
}

// affectedBindKeys returns the bind keys whose listeners may be dirty. A Sidecar's listeners are at the addresses that
// it specifies, on the ports of the services.
func affectedBindKeys(c cohort.Inputs, changes *scope.Dirty) []bindKey {
	if len(changes.Listeners) == 0 {
		return nil
	}
	var binds []string   // addresses at which services of any address may have a listener
	var proxies []uint32 // ports of HTTP proxies, which reach services of any port
	if c.Outbound.Interception == node.None {
		binds = append(binds, loopback(c.Scope.IPv4))
	}
	if s := c.Scope.Sidecar; s != nil {
		for _, e := range s.Spec.(*networkingv1.Sidecar).Egress {
			if e.Bind != "" {
				binds = append(binds, e.Bind)
			} else if e.CaptureMode == networkingv1alpha3.CaptureMode_NONE {
				binds = append(binds, loopback(c.Scope.IPv4))
			} else if e.Port != nil { // its protocol may be HTTP where the service's is not
				binds = append(binds, wildcard(c.Scope.IPv4))
			}
			if registry.ParseProtocol(e.Port.GetProtocol()) == registry.HTTPProxy {
				proxies = append(proxies, e.Port.Number)
			}
		}
	}
	var list []bindKey
	seen := make(map[bindKey]struct{}, len(changes.Listeners))
	add := func(p bindKey) {
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
			add(bindKey{wildcard(c.Scope.IPv4), p.Port})
		}
		if p.Address == "" {
			for _, bind := range binds {
				add(bindKeyOf(bind, p.Port))
			}
		}
	}
	return list
}

func (v *view) newOutboundBuilder(c cohort.Inputs) *outboundBuilder {
	sc := v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar)
	return &outboundBuilder{
		view: v, scope: sc, cohort: c, builders: map[bindKey]*listenerBuilder{}, reservedPorts: map[uint32]bool{},
		context: v.proxyContext(c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10, c.Outbound.Selections), fallback: v.fallback(sc),
	}
}

// build makes the listener that a builder collected.
func (l *outboundBuilder) build(s *listenerBuilder) *envoy.Resource {
	k := outboundKey{proxyContext: l.context, bind: s.bind, port: s.port, bindsPort: s.bindsPort, route: s.route, chains: frozen.ListOf(s.chains...)}
	captured := !s.bindsPort
	if s.grpcWeb {
		k.http = registry.GRPCWeb
	}
	k.dual = s.bind == "0.0.0.0" && l.cohort.Scope.IPv6
	k.matchHTTP = s.route != "" && (len(s.chains) > 0 || captured && s.wildcard)
	if captured && !slices.ContainsFunc(s.chains, tcpChain.matchesAll) && (s.route == "" || k.matchHTTP) {
		k.fallback = l.fallback
	}
	return l.view.t.outbound.Get(k)
}

// fixedListeners returns the listeners that do not depend on services.
func (v *view) fixedListeners(c cohort.Inputs) []*envoy.Resource {
	env := v.proxyContext(c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10, c.Outbound.Selections)
	var out []*envoy.Resource
	if p := cmp.Or(c.Outbound.HTTPProxyPort, uint32(v.Mesh.GetProxyHttpPort())); p != 0 {
		out = append(out, v.t.outbound.Get(outboundKey{proxyContext: env, bind: loopback(c.Scope.IPv4), port: p, bindsPort: true, route: names.HTTPProxyRoute}))
	}
	if c.Outbound.Interception != node.None {
		out = append(out, v.t.virtualOutbound.Get(virtualOutboundKey{
			proxyContext: env, bind: wildcard(c.Scope.IPv4), transparent: c.Outbound.Interception == node.TPROXY, dual: c.Scope.IPv4 && c.Scope.IPv6,
			fallback: v.fallback(v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar)),
		}))
	}
	return out
}
