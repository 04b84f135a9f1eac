package feature

import (
	"cmp"
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Reader is what a feature may read to select objects.
type Reader interface {
	// Objects returns the objects of a kind in a namespace by precedence.
	Objects(kind *kinds.Kind, namespace string) []*kinds.Object
	// RootNamespace returns the namespace of objects that apply to all namespaces.
	RootNamespace() string
	// Fact returns a fact that an object needs, or nil while it is missing.
	Fact(k kinds.Key) *kinds.Object
	// ExtensionProvider returns the extension provider of a name, or nil, and the service that it names, as proxies of
	// a namespace see it, or nil if they see none.
	ExtensionProvider(name, namespace string) (*meshv1alpha1.MeshConfig_ExtensionProvider, *registry.Service)
	// DefaultProviders returns the names of the extension providers that apply if no object names any. It may be nil.
	DefaultProviders() *meshv1alpha1.MeshConfig_DefaultProviders
}

// Workload is a workload for which objects are selected.
type Workload struct {
	Type      node.Type // type of its proxy
	Namespace string
	Labels    registry.Labels
	Services  []*registry.Service // services that it serves

	Version  string                                   // Istio version of its proxy; empty if not known
	Metadata func(key string) (value string, ok bool) // returns text in the metadata of its proxy; nil if there is none
}

// Selection is the objects of one feature that apply to a workload. It is comparable.
type Selection struct {
	Objects   frozen.List[*kinds.Object]     // ordered by precedence
	Facts     frozen.List[*kinds.Object]     // facts that the objects need, without missing ones
	Providers frozen.List[ExtensionProvider] // providers that the objects name, or that apply by default
	Excluded  frozen.List[Excluded]          // parts of objects that do not apply
}

// Excluded are the parts of an object that do not apply to a workload: their indexes, separated by spaces.
type Excluded struct {
	Object *kinds.Object
	Parts  string
}

// ExtensionProvider is an extension provider that objects name. Config is nil if the mesh configuration has none of
// that name, and Service is nil if proxies do not see the service that it names.
type ExtensionProvider struct {
	Name    string
	Config  *meshv1alpha1.MeshConfig_ExtensionProvider
	Service *registry.Service
}

// HasPort reports whether proxies see the service that the provider names, and it has a port of that number.
func (p *ExtensionProvider) HasPort(number uint32) bool {
	if p.Service != nil {
		for range p.Service.PortsByNumber(number) {
			return true
		}
	}
	return false
}

// Cluster returns the name of the cluster for a port of the provider's service.
func (p *ExtensionProvider) Cluster(port uint32) string {
	return names.Cluster(names.Outbound, port, "", p.Service.Host)
}

// Of returns the Selection of some objects.
func Of(objects ...*kinds.Object) Selection {
	return Selection{Objects: frozen.ListOf(objects...)}
}

// Empty reports whether neither an object nor a provider applies.
func (s Selection) Empty() bool { return s.Objects.Empty() && s.Providers.Empty() }

// Fact returns a fact that one of the objects needs, or nil while it is missing. facts.Value returns its value.
func (s Selection) Fact(k kinds.Key) *kinds.Object {
	for f := range s.Facts.All {
		if f.Key == k {
			return f
		}
	}
	return nil
}

// withFacts returns a Selection of a feature with the facts that its objects need.
func (s Selection) withFacts(f *Feature, r Reader) Selection {
	if f.Facts == nil {
		return s
	}
	var list []*kinds.Object
	for o := range s.Objects.All {
		for _, w := range f.Facts(o) {
			if fact := r.Fact(w.Key); fact != nil && !slices.Contains(list, fact) {
				list = append(list, fact)
			}
		}
	}
	s.Facts = frozen.ListOf(list...)
	return s
}

// Policies returns a function that selects the objects of some kinds that match a workload of a namespace: first those
// of the root namespace, then those of its own.
func Policies(r Reader, namespace string, matches func(*kinds.Object, Workload) bool, of ...*kinds.Kind) func(Workload) Selection {
	var all []*kinds.Object
	namespaces := []string{r.RootNamespace(), namespace}
	for _, ns := range slices.Compact(namespaces) {
		for _, kind := range of {
			all = append(all, r.Objects(kind, ns)...)
		}
	}
	return func(w Workload) Selection {
		list := lists.Filter(all, func(o *kinds.Object) bool { return matches(o, w) })
		return Of(list...)
	}
}

// Matches reports whether a policy applies to a workload: one of its targets is the workload's, or its selector
// matches. A policy without targets and selector applies to every workload.
func Matches(o *kinds.Object, w Workload) bool {
	if refs := Targets(o); len(refs) > 0 {
		return slices.ContainsFunc(refs, func(r *typev1beta1.PolicyTargetReference) bool { return w.IsTarget(r, o.Namespace) })
	}
	switch p := o.Spec.(type) {
	case interface {
		GetSelector() *typev1beta1.WorkloadSelector
	}:
		return w.Labels.Match(p.GetSelector().GetMatchLabels())
	case interface {
		GetWorkloadSelector() *networkingv1alpha3.WorkloadSelector
	}:
		return w.Labels.Match(p.GetWorkloadSelector().GetLabels())
	}
	return true
}

// Targets returns the targets of a policy.
func Targets(o *kinds.Object) []*typev1beta1.PolicyTargetReference {
	var refs []*typev1beta1.PolicyTargetReference
	if p, ok := o.Spec.(interface {
		GetTargetRefs() []*typev1beta1.PolicyTargetReference
	}); ok {
		refs = p.GetTargetRefs()
	}
	if p, ok := o.Spec.(interface {
		GetTargetRef() *typev1beta1.PolicyTargetReference
	}); ok && p.GetTargetRef() != nil {
		refs = append(slices.Clip(refs), p.GetTargetRef())
	}
	return refs
}

// TargetsServices reports whether a policy targets a Service or a ServiceEntry.
func TargetsServices(o *kinds.Object) bool {
	return slices.ContainsFunc(Targets(o), func(r *typev1beta1.PolicyTargetReference) bool {
		return r.GetKind() == "Service" || r.GetKind() == "ServiceEntry"
	})
}

// Labels of the pods of a Gateway of the Gateway API.
const (
	gatewayNameLabel    = names.LabelGateway
	oldGatewayNameLabel = names.LabelOldGateway
	gatewayClassLabel   = names.LabelGatewayClass
)

// IsTarget reports whether a policy of a namespace that targets an object applies to a workload: the object is its
// Gateway, in that namespace, or the class of its Gateway, or a service that it serves, in that namespace. A target
// that is not understood is every workload.
func (w Workload) IsTarget(r *typev1beta1.PolicyTargetReference, namespace string) bool {
	serves := func(name func(*registry.Service) string, p registry.Origin) bool {
		return slices.ContainsFunc(w.Services, func(s *registry.Service) bool {
			return s.Provider == p && s.Namespace == namespace && name(s) == r.GetName()
		})
	}
	switch r.GetGroup() + "/" + r.GetKind() {
	case "gateway.networking.k8s.io/Gateway":
		return w.Namespace == namespace && cmp.Or(w.Labels.Get(gatewayNameLabel), w.Labels.Get(oldGatewayNameLabel)) == r.GetName()
	case "gateway.networking.k8s.io/GatewayClass":
		return w.Labels.Get(gatewayClassLabel) == r.GetName()
	case "/Service", "core/Service":
		return serves(func(s *registry.Service) string { return s.Name }, registry.Kubernetes)
	case "networking.istio.io/ServiceEntry":
		return serves(func(s *registry.Service) string { return s.Object }, registry.External)
	}
	return true
}

// Selections are the Selections of several features, without empty ones. They are comparable.
type Selections struct{ list frozen.List[named] }

// named is the Selection of a feature.
type named struct {
	feature string
	Selection
}

// Of returns the Selection of a feature.
func (s Selections) Of(f *Feature) Selection {
	for n := range s.list.All {
		if n.feature == f.Name {
			return n.Selection
		}
	}
	return Selection{}
}

// Empty reports whether all Selections are empty.
func (s Selections) Empty() bool { return s.list.Empty() }

// For returns the Selections of some features only.
func (s Selections) For(features []*Feature) Selections {
	if s.list.Empty() {
		return s
	}
	var list []named
	for n := range s.list.All {
		if slices.ContainsFunc(features, func(f *Feature) bool { return f.Name == n.feature }) {
			list = append(list, n)
		}
	}
	return Selections{frozen.ListOf(list...)}
}

// With returns the Selection that has an object, among several Selections.
func With(o *kinds.Object, all ...Selections) Selection {
	for _, s := range all {
		for n := range s.list.All {
			for selected := range n.Objects.All {
				if selected == o {
					return n.Selection
				}
			}
		}
	}
	return Selection{}
}

// ObjectsOf returns the objects of a kind that are selected in any of several Selections, each once.
func ObjectsOf(kind *kinds.Kind, all ...Selections) []*kinds.Object {
	var list []*kinds.Object
	for _, s := range all {
		for n := range s.list.All {
			for o := range n.Objects.All {
				if o.Kind == kind && !slices.Contains(list, o) {
					list = append(list, o)
				}
			}
		}
	}
	return list
}

// Select selects the objects of each feature for a workload. It returns a function that returns the Selections of one
// or more parts.
func Select(features []*Feature, r Reader, namespace string, w Workload) func(Part) Selections {
	var list []named
	var parts []Part
	for _, f := range features {
		if f.Select == nil {
			continue
		}
		if s := f.Select(r, namespace)(w); !s.Empty() {
			list, parts = append(list, named{f.Name, s.withFacts(f, r)}), append(parts, f.Part)
		}
	}
	return func(part Part) Selections {
		var in []named
		for i, n := range list {
			if parts[i]&part != 0 {
				in = append(in, n)
			}
		}
		return Selections{frozen.ListOf(in...)}
	}
}
