package analysis

import (
	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// telemetryProviders reports providers of Telemetries that the mesh configuration does not define, or whose service
// does not exist.
func (a *analysis) telemetryProviders() {
	there := map[string]bool{"prometheus": true, "stackdriver": true, "envoy": true} // predefined providers
	var list []string
	for _, p := range a.mesh.GetExtensionProviders() {
		there[p.GetName()] = true
		list = append(list, p.GetName())
	}
	for _, o := range a.of(kinds.Telemetry) {
		spec := o.Spec.(*telemetryv1.Telemetry)
		judge := func(path string, providers []*telemetryv1.ProviderRef) {
			for i, p := range providers {
				if there[p.GetName()] || p.GetName() == "" {
					a.collector(o, indexed(path+".providers", i)+".name", p.GetName())
					continue
				}
				fix := "define it in extensionProviders of the mesh configuration"
				if near := a.nearest(p.GetName(), list); near != "" {
					fix = diag.DidYouMean(near)
				}
				a.report(o, diag.Warning, codeTelemetryProvider, indexed(path+".providers", i)+".name",
					fix, "the mesh configuration has no provider %q", p.GetName())
			}
		}
		for i, t := range spec.Tracing {
			judge(indexed("spec.tracing", i), t.Providers)
		}
		for i, m := range spec.Metrics {
			judge(indexed("spec.metrics", i), m.Providers)
		}
		for i, l := range spec.AccessLogging {
			judge(indexed("spec.accessLogging", i), l.Providers)
		}
	}
}

// collector reports a provider of a Telemetry whose service does not exist, so that proxies send nothing.
func (a *analysis) collector(o *kinds.Object, path, name string) {
	p := a.mesh.Provider(name).ProtoReflect()
	which := p.WhichOneof(p.Descriptor().Oneofs().ByName("provider"))
	if which == nil {
		return
	}
	to, ok := p.Get(which).Message().Interface().(interface {
		GetService() string
		GetPort() uint32
	})
	if !ok {
		return
	}
	if problem, fix := a.providerService(o, to.GetService(), to.GetPort()); problem != "" {
		a.report(o, diag.Warning, codeTelemetryProvider, path, fix,
			"provider %q is the service %s, which %s: proxies send nothing to it", name, to.GetService(), problem)
	}
}
