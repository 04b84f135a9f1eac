package scope

import (
	"cmp"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/delegates"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// ResolveDelegates returns a VirtualService in which the routes of its delegates replace the delegating ones. It
// returns root itself if nothing is delegated. find returns a VirtualService, or nil.
//
// A delegate's routes keep their order. Their matches are combined with those of the root by [delegates.Narrow], which
// leaves some routes out. A delegate is dropped if it does not exist, has hosts of its own, or delegates further. find
// returns nil for delegates that are not exported to the root's namespace. Once the number of routes times hosts
// exceeds maxBytes, further delegations are dropped.
//
// Hosts without a dot, and names of Gateways, are resolved in the delegate's own namespace. They are qualified here,
// with suffix as the cluster's domain.
func ResolveDelegates(root *kinds.Object, suffix string, maxBytes int, find func(namespace, name string) *kinds.Object) *kinds.Object {
	return resolveDelegates(root, suffix, maxBytes, find, func(kinds.Key, int) {})
}

// resolveDelegates is ResolveDelegates. It calls from for each rule of the result, with the object of the rule and the
// place there.
func resolveDelegates(root *kinds.Object, suffix string, maxBytes int, find func(namespace, name string) *kinds.Object,
	from func(k kinds.Key, rule int)) *kinds.Object {
	s := VirtualSpec(root)
	var http []*networkingv1alpha3.HTTPRoute
	delegate := func(d *networkingv1alpha3.Delegate) *networkingv1.VirtualService {
		if child := find(cmp.Or(d.Namespace, root.Namespace), d.Name); child != nil && len(VirtualSpec(child).Hosts) == 0 {
			return VirtualSpec(child)
		}
		return nil
	}
	merged, fitting := false, delegates.Fitting(s, maxBytes, delegate)
	for i, h := range s.Http {
		d := h.GetDelegate()
		if d == nil {
			http = append(http, h)
			from(root.Key, i)
			continue
		}
		merged = true
		child := delegate(d)
		if child == nil || i >= fitting {
			continue
		}
		ns := cmp.Or(d.Namespace, root.Namespace)
		for j, c := range child.Http {
			if c.GetDelegate() != nil {
				continue
			}
			if m := mergeRoute(delegates.Rule{HTTPRoute: h, Namespace: root.Namespace}, delegates.Rule{HTTPRoute: c, Namespace: ns},
				suffix); m != nil {
				http = append(http, m)
				from(kinds.Key{Kind: kinds.VirtualService, Namespace: ns, Name: d.Name}, j)
			}
		}
	}
	if !merged {
		return root
	}
	out := *root
	out.Spec = &networkingv1.VirtualService{Hosts: s.Hosts, Gateways: s.Gateways, Http: http, Tls: s.Tls, Tcp: s.Tcp, ExportTo: s.ExportTo}
	return &out
}

// mergeRoute returns the child's route with the settings that it inherits from the root's route, or nil if it is left
// out. It does not change its arguments.
func mergeRoute(root, child delegates.Rule, suffix string) *networkingv1alpha3.HTTPRoute {
	out := proto.CloneOf(child.HTTPRoute)
	qualify(out, child.Namespace, suffix)
	match, outside := delegates.Narrow(root, delegates.Rule{HTTPRoute: out, Namespace: child.Namespace})
	if outside >= 0 {
		return nil
	}
	out.Match = match
	out.Name = delegates.JoinNames(root.Name, child.Name)
	// The root's fields are defaults for the child's.
	out.Rewrite = cmp.Or(out.Rewrite, root.Rewrite)
	out.DirectResponse = cmp.Or(out.DirectResponse, root.DirectResponse)
	out.Timeout = cmp.Or(out.Timeout, root.Timeout)
	out.Retries = cmp.Or(out.Retries, root.Retries)
	out.Fault = cmp.Or(out.Fault, root.Fault)
	out.Mirror = cmp.Or(out.Mirror, root.Mirror)
	out.MirrorPercent = cmp.Or(out.MirrorPercent, root.MirrorPercent) //nolint:staticcheck // users still write mirrorPercent
	out.MirrorPercentage = cmp.Or(out.MirrorPercentage, root.MirrorPercentage)
	out.CorsPolicy = cmp.Or(out.CorsPolicy, root.CorsPolicy)
	out.Headers = cmp.Or(out.Headers, root.Headers)
	if len(out.Mirrors) == 0 {
		out.Mirrors = root.Mirrors
	}
	return out
}

// qualify completes the names of hosts and Gateways in a rule of a namespace.
func qualify(h *networkingv1alpha3.HTTPRoute, namespace, suffix string) {
	each := func(d *networkingv1alpha3.Destination) {
		if d != nil {
			d.Host = names.Destination(d.Host, namespace, suffix)
		}
	}
	for _, d := range h.Route {
		each(d.GetDestination())
	}
	each(h.Mirror)
	for _, m := range h.Mirrors {
		each(m.GetDestination())
	}
	for _, m := range h.Match {
		for i, g := range m.GetGateways() {
			m.Gateways[i] = names.Gateway(g, namespace)
		}
	}
}

// VirtualSpec returns the spec of a VirtualService.
func VirtualSpec(o *kinds.Object) *networkingv1.VirtualService {
	return o.Spec.(*networkingv1.VirtualService)
}
