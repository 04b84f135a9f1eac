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

// listenerRecipe makes the listeners for a sidecar's outgoing traffic, each place's by itself, virtualOutbound included.
func listenerRecipe(c cohort.Inputs) recipe[place] {
	return recipe[place]{
		whole: func(v *view) []*envoy.Resource {
			l := v.newListeners(c)
			for i := range l.scope.Egress {
				e := &l.scope.Egress[i]
				l.open(l.opening(e), e.Services)
			}
			var out []*envoy.Resource
			for _, s := range l.slots {
				out = append(out, l.make(s))
			}
			return append(out, v.fixedListeners(c)...)
		},
		touched: func(changes *scope.Dirty) []place { return touchedPlaces(c, changes) },
		units: func(v *view, all []place) func(place) []*envoy.Resource {
			l := v.newListeners(c)
			l.keepTo(all)
			for i := range l.scope.Egress {
				o := l.opening(&l.scope.Egress[i])
				l.open(o, o.concerned())
			}
			fixed := v.fixedListeners(c)
			return func(at place) []*envoy.Resource {
				if s := l.slots[at]; s != nil {
					return []*envoy.Resource{l.make(s)}
				}
				name := names.Listener(at.bind, at.port)
				return slices.DeleteFunc(slices.Clone(fixed), func(r *envoy.Resource) bool { return r.Name != name })
			}
		},
		of: func(at place) unitOf {
			name := names.Listener(at.bind, at.port)
			return func(r *envoy.Resource) int { return strings.Compare(r.Name, name) }
		},
	}
}

// touchedPlaces are those at which changes may make a difference. A Sidecar's listeners stand where it says, on the ports of the services.
func touchedPlaces(c cohort.Inputs, changes *scope.Dirty) []place {
	if len(changes.Listeners) == 0 {
		return nil
	}
	var binds []string   // in the place of all addresses
	var proxies []uint32 // ports that services of any port are called through
	if c.Outbound.Interception == node.None {
		binds = append(binds, loopback(c.Scope.IPv4))
	}
	if s := c.Scope.Sidecar; s != nil {
		for _, e := range s.Spec.(*networkingv1.Sidecar).Egress {
			if e.Bind != "" {
				binds = append(binds, e.Bind)
			} else if e.CaptureMode == networkingv1alpha3.CaptureMode_NONE {
				binds = append(binds, loopback(c.Scope.IPv4))
			} else if e.Port != nil { // which may say HTTP where a service says otherwise
				binds = append(binds, wildcard(c.Scope.IPv4))
			}
			if registry.ParseProtocol(e.Port.GetProtocol()) == registry.HTTPProxy {
				proxies = append(proxies, e.Port.Number)
			}
		}
	}
	var list []place
	seen := make(map[place]struct{}, len(changes.Listeners))
	add := func(p place) {
		if _, ok := seen[p]; !ok {
			seen[p] = struct{}{}
			list = append(list, p)
		}
	}
	for _, port := range proxies {
		for _, bind := range binds {
			add(placeOf(bind, port))
		}
	}
	for _, p := range changes.Listeners {
		switch {
		case p.Address != "":
			add(placeOf(p.Address, p.Port))
		case p.Wildcard:
			add(place{wildcard(c.Scope.IPv4), p.Port})
		}
		if p.Address == "" {
			for _, bind := range binds {
				add(placeOf(bind, p.Port))
			}
		}
	}
	return list
}

func (v *view) newListeners(c cohort.Inputs) *listeners {
	sc := v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar)
	return &listeners{
		view: v, scope: sc, cohort: c, slots: map[place]*slot{}, locked: map[uint32]bool{},
		env: v.surroundings(c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10), fallback: v.fallback(sc),
	}
}

// make makes the listener of a slot.
func (l *listeners) make(s *slot) *envoy.Resource {
	k := outboundKey{surroundings: l.env, bind: s.bind, port: s.port, real: s.real, route: s.route, chains: frozen.ListOf(s.chains...)}
	captured := !s.real
	if s.web {
		k.http = registry.GRPCWeb
	}
	k.dual = s.bind == "0.0.0.0" && l.cohort.Scope.IPv6
	k.matchHTTP = s.route != "" && (len(s.chains) > 0 || captured && s.wildcard)
	if captured && !slices.ContainsFunc(s.chains, tcpChain.matchesAll) && (s.route == "" || k.matchHTTP) {
		k.fallback = l.fallback
	}
	return l.view.t.outbound.Get(k)
}

// fixedListeners are those that no service asks for.
func (v *view) fixedListeners(c cohort.Inputs) []*envoy.Resource {
	env := v.surroundings(c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10)
	var out []*envoy.Resource
	if p := cmp.Or(c.Outbound.HTTPProxyPort, uint32(v.Mesh.GetProxyHttpPort())); p != 0 {
		out = append(out, v.t.outbound.Get(outboundKey{surroundings: env, bind: loopback(c.Scope.IPv4), port: p, real: true, route: names.HTTPProxyRoute}))
	}
	if c.Outbound.Interception != node.None {
		out = append(out, v.t.virtualOutbound.Get(virtualOutboundKey{
			surroundings: env, bind: wildcard(c.Scope.IPv4), transparent: c.Outbound.Interception == node.TPROXY, dual: c.Scope.IPv4 && c.Scope.IPv6,
			fallback: v.fallback(v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar)),
		}))
	}
	return out
}
