package scope

import (
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// providerInvalidation returns what the services of extension providers make dirty. Proxies of any namespace may ask
// them.
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

// providerHost returns the host of the service that a provider names, and its namespace where the provider names that
// too.
func providerHost(p *meshv1alpha1.MeshConfig_ExtensionProvider) (namespace, host string) {
	var s interface{ GetService() string }
	switch p := p.GetProvider().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp:
		s = p.EnvoyExtAuthzHttp
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc:
		s = p.EnvoyExtAuthzGrpc
	default:
		return "", ""
	}
	if ns, host, ok := strings.Cut(s.GetService(), "/"); ok {
		return ns, host
	}
	return "", s.GetService()
}

// ExtensionProvider returns the extension provider of a name, nil if there is none, and the service that it names, as
// proxies of a namespace see it; nil if they see none.
func (x *Index) ExtensionProvider(name, namespace string) (*meshv1alpha1.MeshConfig_ExtensionProvider, *registry.Service) {
	p := x.Mesh.Provider(name)
	ns, host := providerHost(p)
	if host == "" {
		return p, nil
	}
	for svc := range x.ServicesByHost(host) {
		if (ns == "" || ns == svc.Namespace) && exported(svc.ExportTo, x.Mesh.GetDefaultServiceExportTo(), svc.Namespace, namespace) {
			return p, svc
		}
	}
	return p, nil
}
