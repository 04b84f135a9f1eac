package analysis

import (
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// selfDiscovery is the variable that gives a proxy the cluster of its own workload.
const selfDiscovery = "ISTIO_META_ENABLE_SELF_DISCOVERY"

// zones reports DestinationRules that balance by zone where no proxy has the cluster of its own workload, without which
// Envoy does not.
func (a *analysis) zones() {
	if a.discoversItself() {
		return
	}
	for _, o := range a.rules {
		spec := o.Spec.(*networkingv1.DestinationRule)
		a.zonesOf(o, "spec.trafficPolicy", spec.GetTrafficPolicy())
		for i, s := range spec.Subsets {
			a.zonesOf(o, indexed("spec.subsets", i)+".trafficPolicy", s.GetTrafficPolicy())
		}
	}
}

func (a *analysis) zonesOf(o *kinds.Object, path string, p *networkingv1alpha3.TrafficPolicy) {
	balancer := func(path string, b *networkingv1alpha3.LoadBalancerSettings) {
		if z := b.GetZoneAwareLbSetting(); z != nil && (z.Enabled == nil || z.Enabled.Value) {
			a.report(o, diag.Info, codeNoEffect, path+".loadBalancer.zoneAwareLbSetting",
				"set "+selfDiscovery+` to "true" in proxyMetadata of the mesh's defaultConfig, of a ProxyConfig or of Pods that call`,
				"proxies do not know how callers are spread over the zones: requests go to all zones of the caller's region alike")
		}
	}
	balancer(path, p.GetLoadBalancer())
	for i, s := range p.GetPortLevelSettings() {
		balancer(indexed(path+".portLevelSettings", i), s.GetLoadBalancer())
	}
}

// discoversItself reports whether some proxy may have the cluster of its own workload.
func (a *analysis) discoversItself() bool {
	set := func(variables map[string]string) bool {
		on, _ := strconv.ParseBool(variables[selfDiscovery])
		return on
	}
	if set(a.mesh.GetDefaultConfig().GetProxyMetadata()) {
		return true
	}
	for _, o := range a.of(kinds.ProxyConfig) {
		if set(o.Spec.(*networkingv1beta1.ProxyConfig).GetEnvironmentVariables()) {
			return true
		}
	}
	for _, w := range a.pods {
		if strings.Contains(w.object.Annotations[names.AnnotationProxyConfig], selfDiscovery) {
			return true
		}
	}
	return false
}
