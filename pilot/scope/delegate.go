package scope

import (
	"cmp"
	"strings"

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
// A delegate's routes keep their order. Each match of a delegate is intersected with each match of the root, and
// dropped if they contradict each other. A delegate is dropped if it does not exist, has hosts of its own, or delegates
// further; find leaves out those that are not exported to the root's namespace. Once routes times hosts exceed
// maxBytes, further delegations are dropped.
//
// Hosts without a dot are resolved in the delegate's own namespace. They are qualified here, with suffix as the
// cluster's domain.
func ResolveDelegates(root *kinds.Object, suffix string, maxBytes int, find func(namespace, name string) *kinds.Object) *kinds.Object {
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
			continue
		}
		merged = true
		child := delegate(d)
		if child == nil || i >= fitting {
			continue
		}
		ns := cmp.Or(d.Namespace, root.Namespace)
		for _, c := range child.Http {
			if c.GetDelegate() != nil {
				continue
			}
			if m := mergeRoute(h, c, ns, suffix); m != nil {
				http = append(http, m)
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

// mergeRoute returns the child's route within the root's, nil if no request can match both.
func mergeRoute(root, child *networkingv1alpha3.HTTPRoute, namespace, suffix string) *networkingv1alpha3.HTTPRoute {
	out := proto.CloneOf(child)
	qualify(out, namespace, suffix)
	out.Match = nil
	switch {
	case len(root.Match) == 0:
		out.Match = child.Match
	case len(child.Match) == 0:
		out.Match = root.Match
	default:
		for _, c := range child.Match {
			for _, r := range root.Match {
				if m := intersect(r, c); m != nil {
					out.Match = append(out.Match, m)
				}
			}
		}
		if len(out.Match) == 0 {
			return nil
		}
	}
	out.Name = joinNames(root.Name, child.Name)
	// The root's fields are defaults for the child's.
	if out.Rewrite == nil {
		out.Rewrite = root.Rewrite
	}
	if out.Timeout == nil {
		out.Timeout = root.Timeout
	}
	if out.Retries == nil {
		out.Retries = root.Retries
	}
	if out.Fault == nil {
		out.Fault = root.Fault
	}
	if out.Mirror == nil {
		out.Mirror, out.MirrorPercentage = root.Mirror, root.MirrorPercentage
	}
	if len(out.Mirrors) == 0 {
		out.Mirrors = root.Mirrors
	}
	if out.CorsPolicy == nil {
		out.CorsPolicy = root.CorsPolicy
	}
	if out.Headers == nil {
		out.Headers = root.Headers
	}
	return out
}

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
}

// intersect returns the match of requests that match both, nil if there are none.
func intersect(root, child *networkingv1alpha3.HTTPMatchRequest) *networkingv1alpha3.HTTPMatchRequest {
	out := proto.CloneOf(child)
	ok := true
	one := func(r, c *networkingv1alpha3.StringMatch, within func(r, c *networkingv1alpha3.StringMatch) bool) *networkingv1alpha3.StringMatch {
		if r == nil {
			return c
		}
		if c == nil {
			return r
		}
		ok = ok && within(r, c)
		return c
	}
	all := func(r, c map[string]*networkingv1alpha3.StringMatch) map[string]*networkingv1alpha3.StringMatch {
		for k, v := range r {
			if c == nil {
				c = map[string]*networkingv1alpha3.StringMatch{}
			}
			c[k] = one(v, c[k], equalMatch)
		}
		return c
	}
	out.Uri = one(root.Uri, out.Uri, contains)
	out.Scheme = one(root.Scheme, out.Scheme, equalMatch)
	out.Method = one(root.Method, out.Method, equalMatch)
	out.Authority = one(root.Authority, out.Authority, equalMatch)
	out.Headers = all(root.Headers, out.Headers)
	out.WithoutHeaders = all(root.WithoutHeaders, out.WithoutHeaders)
	out.QueryParams = all(root.QueryParams, out.QueryParams)
	for k, v := range root.SourceLabels {
		if out.SourceLabels == nil {
			out.SourceLabels = map[string]string{}
		}
		if own, has := out.SourceLabels[k]; has && own != v {
			ok = false
		}
		out.SourceLabels[k] = v
	}
	if root.Port != 0 {
		ok = ok && (out.Port == 0 || out.Port == root.Port)
		out.Port = root.Port
	}
	if root.SourceNamespace != "" {
		ok = ok && (out.SourceNamespace == "" || out.SourceNamespace == root.SourceNamespace)
		out.SourceNamespace = root.SourceNamespace
	}
	if len(root.Gateways) > 0 { // a delegate is bound to no gateway of its own
		out.Gateways = root.Gateways
	}
	ok = ok && (root.Uri == nil || child.Uri == nil || root.IgnoreUriCase == child.IgnoreUriCase)
	out.IgnoreUriCase = child.IgnoreUriCase || root.IgnoreUriCase
	if out.StatPrefix == "" {
		out.StatPrefix = root.StatPrefix
	}
	if !ok {
		return nil
	}
	return out
}

func equalMatch(r, c *networkingv1alpha3.StringMatch) bool { return proto.Equal(r, c) }

// contains reports whether every string that c matches is also matched by r. It may miss some cases.
func contains(r, c *networkingv1alpha3.StringMatch) bool {
	if proto.Equal(r, c) {
		return true
	}
	prefix, isPrefix := r.MatchType.(*networkingv1alpha3.StringMatch_Prefix)
	if !isPrefix {
		return false
	}
	switch m := c.MatchType.(type) {
	case *networkingv1alpha3.StringMatch_Prefix:
		return strings.HasPrefix(m.Prefix, prefix.Prefix)
	case *networkingv1alpha3.StringMatch_Exact:
		return strings.HasPrefix(m.Exact, prefix.Prefix)
	}
	return false
}

// VirtualSpec returns the spec of a VirtualService.
func VirtualSpec(o *kinds.Object) *networkingv1.VirtualService {
	return o.Spec.(*networkingv1.VirtualService)
}

// joinNames joins the names of a route and its match.
func joinNames(route, match string) string {
	if route != "" && match != "" {
		return route + "." + match
	}
	return route + match
}
