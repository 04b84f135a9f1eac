package virtualservice

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// action returns the forwarding of a route. authority is the host that the route's header operations set.
func (o Options) action(h *networkingv1alpha3.HTTPRoute, r *routev3.Route, authority string) *routev3.RouteAction {
	timeout := envoy.Duration(0)
	if h.Timeout != nil {
		timeout = h.Timeout
	}
	a := &routev3.RouteAction{RetryPolicy: DefaultRetry(o.Retries)}
	if h.Retries != nil { // the route's own retries replace the mesh's
		a.RetryPolicy = retry(h.Retries, DefaultRetry(nil))
	}
	setTimeout(a, timeout)
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
		if host := operationsOf(to[0].Headers).addTo(r); host != "" {
			authority = host
		}
		o.hash(a, cluster)
	} else {
		all := &routev3.WeightedCluster{}
		for i, d := range to {
			cluster, ops := o.cluster(d.Destination), operationsOf(d.Headers)
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

func (o Options) cluster(d *networkingv1alpha3.Destination) string {
	return o.Cluster(names.FQDN(d.GetHost(), o.Object.Namespace, o.Suffix), d.GetSubset(), d.GetPort().GetNumber())
}

// hash adds the hash policies of a destination, each once.
func (o Options) hash(a *routev3.RouteAction, cluster string) {
	c, ok := names.ParseCluster(cluster)
	if !ok || o.Hash == nil {
		return
	}
	for _, p := range o.Hash(c) {
		if !slices.ContainsFunc(a.HashPolicy, func(q *routev3.RouteAction_HashPolicy) bool { return proto.Equal(p, q) }) {
			a.HashPolicy = append(a.HashPolicy, p)
		}
	}
}

// destinations returns the destinations that get requests, with their weights. Without any weight all get the same
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
	whole       uint32 // where percentage is nil
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

// DefaultRetry returns the default retry policy: twice more on another host, where the upstream cannot have acted on
// the request. The mesh's defaultHttpRetryPolicy changes it; with 0 attempts there it is nil, no retries.
func DefaultRetry(mesh *networkingv1alpha3.HTTPRetry) *routev3.RetryPolicy {
	return retry(mesh, &routev3.RetryPolicy{
		RetryOn:                       "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		NumRetries:                    envoy.UInt32(2),
		HostSelectionRetryMaxAttempts: 5,
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: envoy.Any(&previoushostsv3.PreviousHostsPredicate{})},
		}},
	})
}

// retry returns base with the changes of r. base is nil where the mesh has turned retries off.
func retry(r *networkingv1alpha3.HTTPRetry, base *routev3.RetryPolicy) *routev3.RetryPolicy {
	switch {
	case r == nil && base == nil, r != nil && r.Attempts <= 0:
		return nil
	case r == nil:
		return base
	case base == nil:
		base = DefaultRetry(nil)
	}
	out := proto.CloneOf(base)
	out.NumRetries = envoy.UInt32(uint32(r.Attempts))
	if r.RetryOn != "" {
		out.RetryOn, out.RetriableStatusCodes = retryOn(r.RetryOn)
	}
	if r.PerTryTimeout != nil {
		out.PerTryTimeout = r.PerTryTimeout
	}
	if r.Backoff != nil {
		out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: r.Backoff}
	}
	if r.RetryIgnorePreviousHosts != nil && !r.RetryIgnorePreviousHosts.Value {
		out.RetryHostPredicate = nil
	}
	if r.RetryRemoteLocalities.GetValue() {
		out.RetryPriority = &routev3.RetryPolicy_RetryPriority{
			Name:       "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{TypedConfig: envoy.Any(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 2})},
		}
	}
	return out
}

// retryOn separates conditions from status codes: Envoy has a field for each.
func retryOn(s string) (string, []uint32) {
	const byCode = "retriable-status-codes"
	var conditions []string
	var codes []uint32
	for c := range strings.SplitSeq(s, ",") {
		c = strings.TrimSpace(c)
		if n, ok := number(c); ok {
			codes = append(codes, n)
		} else if c != "" && !slices.Contains(conditions, c) {
			conditions = append(conditions, c)
		}
	}
	if len(codes) > 0 && !slices.Contains(conditions, byCode) {
		conditions = append(conditions, byCode)
	}
	return strings.Join(conditions, ","), codes
}

func (o Options) redirect(in *networkingv1alpha3.HTTPRedirect) *routev3.Route_Redirect {
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
	case *networkingv1alpha3.HTTPRedirect_DerivePort: // the protocol's default needs no port: Envoy writes none
		if p.DerivePort == networkingv1alpha3.HTTPRedirect_FROM_REQUEST_PORT {
			out.PortRedirect = o.Port
		}
	}
	return &routev3.Route_Redirect{Redirect: out}
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
