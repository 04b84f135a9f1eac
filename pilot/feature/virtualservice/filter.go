package virtualservice

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

const (
	faultFilter = "envoy.filters.http.fault"
	corsFilter  = "envoy.filters.http.cors"
)

// filtersReadOf returns an empty chain, because all chains have the same filters.
func filtersReadOf(feature.Chain) feature.Chain { return feature.Chain{} }

// httpFilters returns the filters that routes configure.
func httpFilters(feature.Chain) []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{
		envoy.HTTPFilter(faultFilter, envoy.Any(&faultv3.HTTPFault{})),
		envoy.HTTPFilter(corsFilter, envoy.Any(&corsv3.Cors{})),
	}
}

func perFilterConfig(h *networkingv1alpha3.HTTPRoute) map[string]*anypb.Any {
	var out map[string]*anypb.Any
	set := func(name string, config *anypb.Any) {
		lists.Put(&out, name, config)
	}
	if f := fault(h.Fault); f != nil {
		set(faultFilter, envoy.Any(f))
	}
	if c := h.CorsPolicy; c != nil {
		set(corsFilter, envoy.Any(cors(c)))
	}
	return out
}

func fault(f *networkingv1alpha3.HTTPFaultInjection) *faultv3.HTTPFault {
	out := &faultv3.HTTPFault{}
	if d := f.GetDelay(); d != nil {
		if fixed := d.GetFixedDelay(); fixed != nil {
			out.Delay = &commonfaultv3.FaultDelay{
				FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: fixed},
				Percentage:         percentage(d.Percentage, uint32(max(d.Percent, 0))), //nolint:staticcheck // users still write percent
			}
		}
	}
	if a := f.GetAbort(); a != nil {
		abort := &faultv3.FaultAbort{Percentage: percentage(a.Percentage, 0)}
		switch e := a.ErrorType.(type) {
		case *networkingv1alpha3.HTTPFaultInjection_Abort_HttpStatus:
			abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: uint32(e.HttpStatus)}
			out.Abort = abort
		case *networkingv1alpha3.HTTPFaultInjection_Abort_GrpcStatus:
			if code, ok := grpcCode(e.GrpcStatus); ok {
				abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: code}
				out.Abort = abort
			}
		}
	}
	if out.Delay == nil && out.Abort == nil {
		return nil
	}
	return out
}

// grpcCode returns the number of a gRPC status, https://grpc.github.io/grpc/core/md_doc_statuscodes.html, from its name
// or its number.
func grpcCode(name string) (uint32, bool) {
	all := strings.Fields(`OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
		RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED`)
	if i := slices.Index(all, name); i >= 0 {
		return uint32(i), true
	}
	n, ok := number(name)
	return n, ok && int(n) < len(all)
}

// percentage returns a fraction in millionths, or whole percents if p is nil.
func percentage(p *networkingv1alpha3.Percent, whole uint32) *typev3.FractionalPercent {
	if p == nil {
		return &typev3.FractionalPercent{Numerator: whole}
	}
	return &typev3.FractionalPercent{Numerator: uint32(max(p.Value, 0)*10000 + 0.5), Denominator: typev3.FractionalPercent_MILLION}
}

func cors(c *networkingv1alpha3.CorsPolicy) *corsv3.CorsPolicy {
	out := &corsv3.CorsPolicy{
		AllowMethods:                 strings.Join(c.AllowMethods, ","),
		AllowHeaders:                 strings.Join(c.AllowHeaders, ","),
		ExposeHeaders:                strings.Join(c.ExposeHeaders, ","),
		AllowCredentials:             c.AllowCredentials,
		FilterEnabled:                &corev3.RuntimeFractionalPercent{DefaultValue: percentage(nil, 100)},
		ForwardNotMatchingPreflights: envoy.Bool(c.UnmatchedPreflights != networkingv1alpha3.CorsPolicy_IGNORE),
	}
	for _, m := range c.AllowOrigins {
		if s := stringMatch(m); s != nil {
			out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, s)
		}
	}
	if len(c.AllowOrigins) == 0 {
		for _, origin := range c.AllowOrigin { //nolint:staticcheck // users still write allowOrigin
			out.AllowOriginStringMatch = append(out.AllowOriginStringMatch,
				&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: origin}})
		}
	}
	if c.MaxAge != nil {
		out.MaxAge = strconv.FormatInt(c.MaxAge.Seconds, 10)
	}
	return out
}

// operations are header operations in Envoy's terms.
type operations struct {
	requestAdd, responseAdd       []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
	authority                     string // new host of requests, which Envoy does not allow as a header operation
}

func (o options) operations(h *networkingv1alpha3.Headers) operations {
	var all operations
	all.requestAdd, all.requestRemove, all.authority = o.headerOperations(h.GetRequest())
	all.responseAdd, all.responseRemove, _ = o.headerOperations(h.GetResponse())
	return all
}

func (o options) headerOperations(h *networkingv1alpha3.Headers_HeaderOperations) (add []*corev3.HeaderValueOption, remove []string,
	authority string) {
	for _, k := range sorted(h.GetSet()) {
		if isHost(k) {
			authority = h.Set[k]
			continue
		}
		add = append(add, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: k, Value: feature.Commands(o.Capabilities, h.Set[k])},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	for _, k := range sorted(h.GetAdd()) {
		if !isHost(k) {
			add = append(add, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: k, Value: feature.Commands(o.Capabilities, h.Add[k])}})
		}
	}
	for _, k := range h.GetRemove() {
		if !isHost(k) {
			remove = append(remove, k)
		}
	}
	return add, remove, authority
}

func isHost(header string) bool {
	return strings.EqualFold(header, "host") || strings.EqualFold(header, ":authority")
}

// addTo adds the operations to a route and returns the authority that they set.
func (o operations) addTo(r *routev3.Route) string {
	r.RequestHeadersToAdd = append(r.RequestHeadersToAdd, o.requestAdd...)
	r.RequestHeadersToRemove = append(r.RequestHeadersToRemove, o.requestRemove...)
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, o.responseAdd...)
	r.ResponseHeadersToRemove = append(r.ResponseHeadersToRemove, o.responseRemove...)
	return o.authority
}
