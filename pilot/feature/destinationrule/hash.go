package destinationrule

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// Hash implements feature.Destination. The hash of a subset comes before the hash of the service, and the hash of a
// port before the hash of all ports. An entry without a hash does not hide the next one.
func (policies) Hash(r traffic.Rule, port uint32) []*routev3.RouteAction_HashPolicy {
	var h *networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB
	for _, p := range []traffic.Policy{r.Policy(port), r.Policy(0), r.WithoutSubset().Policy(port), r.WithoutSubset().Policy(0)} {
		if h = p.LoadBalancer.GetConsistentHash(); h != nil {
			break
		}
	}
	if h == nil {
		return nil
	}
	policy := &routev3.RouteAction_HashPolicy{}
	switch key := h.HashKey.(type) {
	case *networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: key.HttpHeaderName},
		}
	case *networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		cookie := &routev3.RouteAction_HashPolicy_Cookie{Name: key.HttpCookie.GetName(), Path: key.HttpCookie.GetPath(),
			Ttl: key.HttpCookie.GetTtl()}
		for _, a := range key.HttpCookie.GetAttributes() {
			cookie.Attributes = append(cookie.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.GetName(), Value: a.GetValue()})
		}
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: cookie}
	case *networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		if !key.UseSourceIp {
			return nil
		}
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
		}
	case *networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: key.HttpQueryParameterName},
		}
	default:
		return nil
	}
	return []*routev3.RouteAction_HashPolicy{policy}
}
