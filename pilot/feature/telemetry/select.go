package telemetry

import (
	"slices"

	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// selectTelemetry selects, in this order, the oldest object of the mesh, the oldest of the namespace, and all objects
// of the namespace that select this workload. The providers are the ones in these objects, and the mesh's defaults.
func selectTelemetry(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
	var common, selective []*kinds.Object
	if root := r.RootNamespace(); root != namespace {
		common, _ = levels(r.Objects(kinds.Telemetry, root))
	}
	own, selective := levels(r.Objects(kinds.Telemetry, namespace))
	common = append(common, own...)
	return func(w feature.Workload) feature.Selection {
		all := slices.Clip(common)
		for _, o := range selective {
			if feature.Matches(o, w) && !feature.TargetsServices(o) { // objects for services are for waypoints
				all = append(all, o)
			}
		}
		s := feature.Of(all...)
		s.Providers = frozen.ListOf(providers(r, namespace, all)...)
		return s
	}
}

// levels returns the oldest of some objects that applies to every workload of its namespace, and all objects that apply
// to some workloads.
func levels(list []*kinds.Object) (common, selective []*kinds.Object) {
	for _, o := range list {
		switch t := spec(o); {
		case len(t.GetSelector().GetMatchLabels()) > 0, t.GetTargetRef() != nil, len(t.GetTargetRefs()) > 0:
			selective = append(selective, o)
		case common == nil:
			common = []*kinds.Object{o}
		}
	}
	return common, selective
}

// providers returns the providers in some objects, and the default ones.
func providers(r feature.Reader, namespace string, objects []*kinds.Object) []feature.ExtensionProvider {
	var list []feature.ExtensionProvider
	add := func(names ...string) {
		for _, name := range names {
			if !slices.ContainsFunc(list, func(p feature.ExtensionProvider) bool { return p.Name == name }) {
				p := feature.ExtensionProvider{Name: name}
				p.Config, p.Service = r.ExtensionProvider(name, namespace)
				list = append(list, p)
			}
		}
	}
	add(r.DefaultProviders().GetAccessLogging()...)
	add(r.DefaultProviders().GetTracing()...)
	for _, o := range objects {
		t := spec(o)
		for _, a := range t.AccessLogging {
			add(providerNames(a.Providers)...)
		}
		for _, a := range t.Tracing {
			add(providerNames(a.Providers)...)
		}
	}
	return list
}

// providerNames returns the names that references have.
func providerNames(refs []*telemetryv1.ProviderRef) []string {
	return lists.Map(refs, func(r *telemetryv1.ProviderRef) string { return r.GetName() })
}

func spec(o *kinds.Object) *telemetryv1.Telemetry { return o.Spec.(*telemetryv1.Telemetry) }
