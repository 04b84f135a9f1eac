package virtualservice

import (
	"cmp"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// action returns the forwarding of a route. authority is the host that the route's header operations set.
func (o options) action(h *networkingv1alpha3.HTTPRoute, r *routev3.Route, authority string) *routev3.RouteAction {
	timeout := envoy.Duration(0)
	if h.Timeout != nil {
		timeout = h.Timeout
	}
	a := &routev3.RouteAction{RetryPolicy: feature.Retries(cmp.Or(h.Retries, o.Retries))}
	setTimeout(a, timeout)
	if o.Object.RouteExtra().MissingCluster == 500 {
		a.ClusterNotFoundResponseCode = routev3.RouteAction_INTERNAL_SERVER_ERROR
	}
	if w := h.Rewrite; w != nil {
		if w.Authority != "" {
			authority = w.Authority
		}
		if x := w.UriRegexRewrite; x != nil {
			a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{Pattern: regex(x.Match), Substitution: x.Rewrite}
		} else {
			a.PrefixRewrite = w.Uri
		}
	}
	for _, m := range mirrors(h) {
		a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster:                       o.cluster(m.destination),
			RuntimeFraction:               &corev3.RuntimeFractionalPercent{DefaultValue: percentage(m.percentage, m.whole)},
			TraceSampled:                  envoy.Bool(false),
			DisableShadowHostSuffixAppend: true,
		})
	}
	if to, weights := destinations(h); len(h.Route) == 1 {
		cluster := o.cluster(to[0].Destination)
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: cluster}
		if host := o.operations(to[0].Headers).addTo(r); host != "" {
			authority = host
		}
		o.hash(a, cluster)
		if len(a.HashPolicy) > 0 && a.RetryPolicy != nil && h.Retries.GetRetryIgnorePreviousHosts() == nil {
			a.RetryPolicy.RetryHostPredicate = nil // with a hash, a retry may go to the same host
		}
	} else {
		all := &routev3.WeightedCluster{}
		for i, d := range to {
			cluster, ops := o.cluster(d.Destination), o.operations(d.Headers)
			c := &routev3.WeightedCluster_ClusterWeight{
				Name: cluster, Weight: envoy.UInt32(weights[i]),
				RequestHeadersToAdd: ops.requestAdd, RequestHeadersToRemove: ops.requestRemove,
				ResponseHeadersToAdd: ops.responseAdd, ResponseHeadersToRemove: ops.responseRemove,
			}
			if ops.authority != "" {
				c.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: ops.authority}
			}
			all.Clusters = append(all.Clusters, c)
			o.hash(a, cluster)
		}
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
	}
	if authority != "" {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
	return a
}

// setTimeout sets the timeout of a request. A gRPC client may ask for less, not more.
func setTimeout(a *routev3.RouteAction, timeout *durationpb.Duration) {
	a.Timeout = timeout
	a.MaxGrpcTimeout = timeout //nolint:staticcheck // max_stream_duration would bound streams too
}

func (o options) cluster(d *networkingv1alpha3.Destination) string {
	return o.Destinations.Cluster(names.Destination(d.GetHost(), o.Object.Namespace, o.Domain), d.GetSubset(), d.GetPort().GetNumber())
}

// hash adds the hash policies of a destination, each once.
func (o options) hash(a *routev3.RouteAction, cluster string) {
	c, ok := names.ParseCluster(cluster)
	if !ok {
		return
	}
	for _, p := range o.Destinations.Hash(c) {
		if !slices.ContainsFunc(a.HashPolicy, func(q *routev3.RouteAction_HashPolicy) bool { return proto.Equal(p, q) }) {
			a.HashPolicy = append(a.HashPolicy, p)
		}
	}
}

// destinations returns the destinations that get requests, with their weights. If none has a weight, all get the same
// share.
func destinations(h *networkingv1alpha3.HTTPRoute) (to []*networkingv1alpha3.HTTPRouteDestination, weights []uint32) {
	for _, d := range h.Route {
		if d.GetWeight() > 0 {
			to, weights = append(to, d), append(weights, uint32(d.Weight))
		}
	}
	if len(to) > 0 {
		return to, weights
	}
	return h.Route, slices.Repeat([]uint32{1}, len(h.Route))
}

type mirror struct {
	destination *networkingv1alpha3.Destination
	percentage  *networkingv1alpha3.Percent
	whole       uint32 // used if percentage is nil
}

func mirrors(h *networkingv1alpha3.HTTPRoute) []mirror {
	var out []mirror
	add := func(d *networkingv1alpha3.Destination, p *networkingv1alpha3.Percent, whole uint32) {
		if d != nil && (p == nil && whole > 0 || p.GetValue() > 0) {
			out = append(out, mirror{d, p, whole})
		}
	}
	whole := uint32(100)
	if h.MirrorPercent != nil { //nolint:staticcheck // users still write mirrorPercent
		whole = h.MirrorPercent.Value //nolint:staticcheck // as above
	}
	add(h.Mirror, h.MirrorPercentage, whole)
	for _, m := range h.Mirrors {
		add(m.GetDestination(), m.GetPercentage(), 100)
	}
	return out
}

func (o options) redirect(in *networkingv1alpha3.HTTPRedirect) *routev3.Route_Redirect {
	out := &routev3.RedirectAction{HostRedirect: in.Authority, ResponseCode: redirectCode(in.RedirectCode)}
	switch {
	case in.PrefixRewrite != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: in.PrefixRewrite}
	case in.Uri != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: in.Uri}
	}
	if in.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: in.Scheme}
	}
	switch p := in.RedirectPort.(type) {
	case *networkingv1alpha3.HTTPRedirect_Port:
		out.PortRedirect = p.Port
	case *networkingv1alpha3.HTTPRedirect_DerivePort: // Envoy omits the protocol's default port
		if p.DerivePort == networkingv1alpha3.HTTPRedirect_FROM_REQUEST_PORT {
			out.PortRedirect = o.Port
		}
	}
	if out.PortRedirect == 0 && out.HostRedirect == "" && o.Object.RouteExtra().SchemePort {
		out.PortRedirect = schemePort(in.Scheme, o.Port)
	}
	return &routev3.Route_Redirect{Redirect: out}
}

// schemePort returns the port of a redirect that changes only the scheme, for requests at a port, or 0 for none. Envoy
// keeps the port in the request's host. On ports 80 and 443 clients omit the port, so there is nothing to replace.
func schemePort(scheme string, port uint32) uint32 {
	switch {
	case port == 80 || port == 443:
	case scheme == "http":
		return 80
	case scheme == "https":
		return 443
	}
	return 0
}

func redirectCode(code uint32) routev3.RedirectAction_RedirectResponseCode {
	switch code {
	case 302:
		return routev3.RedirectAction_FOUND
	case 303:
		return routev3.RedirectAction_SEE_OTHER
	case 307:
		return routev3.RedirectAction_TEMPORARY_REDIRECT
	case 308:
		return routev3.RedirectAction_PERMANENT_REDIRECT
	}
	return routev3.RedirectAction_MOVED_PERMANENTLY
}

func directResponse(in *networkingv1alpha3.HTTPDirectResponse) *routev3.Route_DirectResponse {
	out := &routev3.DirectResponseAction{Status: in.Status}
	switch b := in.GetBody().GetSpecifier().(type) {
	case *networkingv1alpha3.HTTPBody_String_:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: b.String_}}
	case *networkingv1alpha3.HTTPBody_Bytes:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b.Bytes}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: out}
}
