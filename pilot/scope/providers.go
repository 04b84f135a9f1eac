package scope

import (
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// providerInvalidation returns the invalidation rules for services of extension providers, which proxies of any
// namespace may call.
func providerInvalidation() []InvalidationRule {
	return []InvalidationRule{
		{Name: "services of extension providers", start: func(b *dirtyBuilder) {
			for svc := range b.changedServices {
				b.dirty.Reassign.All = b.dirty.Reassign.All || namesHost(b.index.Mesh, svc.Host)
			}
		}},
	}
}

// namesHost reports whether an extension provider names the service of a host.
func namesHost(m *mesh.Config, host string) bool {
	for _, p := range m.GetExtensionProviders() {
		if _, h := providerHost(p); h == host {
			return true
		}
	}
	return false
}

// providerHost returns the host of the service that a provider names, and its namespace if the provider names that too.
// Both are empty if it names none.
func providerHost(p *meshv1alpha1.MeshConfig_ExtensionProvider) (namespace, host string) {
	m := p.ProtoReflect()
	which := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
	if which == nil {
		return "", ""
	}
	s, ok := m.Get(which).Message().Interface().(interface{ GetService() string })
	if !ok {
		return "", ""
	}
	if ns, host, ok := strings.Cut(s.GetService(), "/"); ok {
		return ns, host
	}
	return "", s.GetService()
}

// DefaultProviders returns the providers that apply if no object names any.
func (x *Index) DefaultProviders() *meshv1alpha1.MeshConfig_DefaultProviders {
	return x.Mesh.GetDefaultProviders()
}

// ExtensionProvider returns the extension provider of a name, or nil, and the service that it names, as proxies of a
// namespace see it, or nil if they see none.
func (x *Index) ExtensionProvider(name, namespace string) (*meshv1alpha1.MeshConfig_ExtensionProvider, *registry.Service) {
	p := x.Mesh.Provider(name)
	ns, host := providerHost(p)
	if host == "" {
		return p, nil
	}
	for svc := range x.ServicesByHost(host) {
		if (ns == "" || ns == svc.Namespace) && serviceExported(svc.ExportTo, x.Mesh.GetDefaultServiceExportTo(), svc.Namespace, namespace) {
			return p, svc
		}
	}
	return p, nil
}

// TracesServices reports whether there is a tracer to which proxies send their service name.
func (x *Index) TracesServices() bool {
	return slices.ContainsFunc(x.Mesh.GetExtensionProviders(), func(p *meshv1alpha1.MeshConfig_ExtensionProvider) bool {
		return p.GetDatadog() != nil || p.GetOpentelemetry() != nil
	})
}
