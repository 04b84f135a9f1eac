package view

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/registry"
)

// View is one Snapshot as generators read it.
type View struct {
	Reader
	Revision uint64
	Gateways *gateway.Tables
	Log      *engine.Log // log of conflicts; nil if they are not recorded

	merged *mergedRules
}

// New returns the view of a Snapshot, read through its Index.
func New(x *scope.Index) *View {
	return &View{Reader: index{x}, Revision: x.Revision, Gateways: &gateway.Tables{}, merged: &mergedRules{}}
}

// Set returns a Set as it is in a view. If the cache does not have it, newGenerator is called with a view that records
// conflicts.
func Set[P comparable](c *engine.Cache, k engine.Key, v *View, newGenerator func(*View) engine.Generator[P]) *engine.Version {
	return engine.Get(c, k, v.Revision, func(l *engine.Log) engine.Generator[P] {
		own := *v
		own.Log = l
		return newGenerator(&own)
	})
}

// MergedRules returns the DestinationRules in force for a cohort's calls to a service. It leaves out subsets beyond the
// limit for a service with that many ports.
func (v *View) MergedRules(c cohort.Client, s *registry.Service) *traffic.Merged {
	return v.merged.of(v.DestinationRules(c.Namespace, s, c.Rules)).Limit(limits.Subsets(v.HostClusters(), len(s.Ports)))
}

// ServiceRule returns the rule of the service itself, without a subset.
func (v *View) ServiceRule(c cohort.Client, s *registry.Service) traffic.Rule {
	rule, _ := v.MergedRules(c, s).Rule("")
	return rule
}

// DynamicDNS reports whether the mesh resolves the hosts of requests to no service.
func (v *View) DynamicDNS() bool {
	return v.Mesh().GetOutboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS
}

// HTTPFallback returns the cluster for requests to no service.
func (v *View) HTTPFallback(s *scope.Scope) string {
	if v.DynamicDNS() && s.Spec().GetOutboundTrafficPolicy() == nil {
		return names.AllowAnyDynamicDNSCluster
	}
	return v.Fallback(s)
}

// Fallback returns the cluster for connections to no service.
func (v *View) Fallback(s *scope.Scope) string {
	if p := s.Spec().GetOutboundTrafficPolicy(); p != nil {
		if p.Mode == networkingv1alpha3.OutboundTrafficPolicy_REGISTRY_ONLY {
			return names.BlackHoleCluster
		}
		if e := p.EgressProxy; e != nil {
			return names.Cluster(names.Outbound, e.GetPort().GetNumber(), e.Subset, e.Host)
		}
		return names.PassthroughCluster
	}
	if !v.Mesh().AllowAny() && !v.DynamicDNS() {
		return names.BlackHoleCluster
	}
	return names.PassthroughCluster
}
