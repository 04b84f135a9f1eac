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

// ResolveDelegates gives the VirtualService with the routes of those that it delegates to in the place of the delegating ones, or root itself if there are none. find gives
// a VirtualService, or nil. A delegate keeps its own order; each of its matches is narrowed by each of the root's, and one that contradicts the root's is dropped, as is
// a delegate that does not exist, has hosts of its own, or delegates further. Once routes and hosts multiply to more than most bytes, further delegations are dropped.
//
// Hosts without a dot are resolved in the delegate's own namespace, so they are qualified here, with suffix, the cluster's domain.
func ResolveDelegates(root *kinds.Object, suffix string, most int, find func(namespace, name string) *kinds.Object) *kinds.Object {
	s := virtualSpec(root)
	var http []*networkingv1alpha3.HTTPRoute
	delegate := func(d *networkingv1alpha3.Delegate) *networkingv1.VirtualService {
		if child := find(cmp.Or(d.Namespace, root.Namespace), d.Name); child != nil && len(virtualSpec(child).Hosts) == 0 {
			return virtualSpec(child)
		}
		return nil
	}
	merged, fitting := false, delegates.Fitting(s, most, delegate)
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
			if m := merge(h, c, ns, suffix); m != nil {
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

// merge gives the child's route within the root's, nil if no request can match both.
func merge(root, child *networkingv1alpha3.HTTPRoute, namespace, suffix string) *networkingv1alpha3.HTTPRoute {
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
				if m := narrow(r, c); m != nil {
					out.Match = append(out.Match, m)
				}
			}
		}
		if len(out.Match) == 0 {
			return nil
		}
	}
	out.Name = dotted(root.Name, child.Name)
	// What the child does not say, the root says.
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
			d.Host = names.FQDN(d.Host, namespace, suffix)
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

// narrow gives the match of requests that match both, nil if there are none.
func narrow(root, child *networkingv1alpha3.HTTPMatchRequest) *networkingv1alpha3.HTTPMatchRequest {
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
			c[k] = one(v, c[k], same)
		}
		return c
	}
	out.Uri = one(root.Uri, out.Uri, nests)
	out.Scheme = one(root.Scheme, out.Scheme, same)
	out.Method = one(root.Method, out.Method, same)
	out.Authority = one(root.Authority, out.Authority, same)
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

func same(r, c *networkingv1alpha3.StringMatch) bool { return proto.Equal(r, c) }

// nests tells whether what c matches lies within what r matches, as far as can be told.
func nests(r, c *networkingv1alpha3.StringMatch) bool {
	if proto.Equal(r, c) {
		return true
	}
	under, isPrefix := r.MatchType.(*networkingv1alpha3.StringMatch_Prefix)
	if !isPrefix {
		return false
	}
	switch m := c.MatchType.(type) {
	case *networkingv1alpha3.StringMatch_Prefix:
		return strings.HasPrefix(m.Prefix, under.Prefix)
	case *networkingv1alpha3.StringMatch_Exact:
		return strings.HasPrefix(m.Exact, under.Prefix)
	}
	return false
}

func virtualSpec(o *kinds.Object) *networkingv1.VirtualService {
	return o.Spec.(*networkingv1.VirtualService)
}

// dotted joins the names of a route and its match.
func dotted(route, match string) string {
	if route != "" && match != "" {
		return route + "." + match
	}
	return route + match
}
