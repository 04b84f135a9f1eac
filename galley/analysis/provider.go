package analysis

import (
	"strings"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// authorizers reports the policies of action CUSTOM whose authorizer cannot be asked: they refuse every request.
func (a *analysis) authorizers() {
	var all []string // the names of authorizers
	for _, p := range a.mesh.GetExtensionProviders() {
		if p.GetEnvoyExtAuthzGrpc() != nil || p.GetEnvoyExtAuthzHttp() != nil {
			all = append(all, p.GetName())
		}
	}
	for _, o := range a.objects {
		policy, ok := o.Spec.(*securityv1.AuthorizationPolicy)
		if !ok || policy.Action != securityv1.AuthorizationPolicy_CUSTOM {
			continue
		}
		name := policy.GetProvider().GetName()
		p := a.mesh.Provider(name)
		service := p.GetEnvoyExtAuthzGrpc().GetService() + p.GetEnvoyExtAuthzHttp().GetService()
		switch {
		case service != "":
			a.authorizer(o, name, service)
		default:
			fix := "define it in extensionProviders of the mesh configuration"
			if meant := a.nearest(name, all); meant != "" {
				fix = diag.DidYouMean(meant)
			}
			a.report(o, diag.Error, codeProvider, "spec.provider.name", fix, "the mesh configuration has no ext_authz provider %q: every request to the workloads that the policy selects is refused", name)
		}
	}
}

// authorizer reports a service of an authorizer that does not exist, or that the workloads of a policy do not see. A
// service is a host, or namespace/host.
func (a *analysis) authorizer(o *kinds.Object, provider, service string) {
	ns, name, ok := strings.Cut(service, "/")
	if !ok {
		ns, name = "", service
	}
	if len(a.services) == 0 { // somebody else has them
		return
	}
	seen := false
	for _, h := range a.hosts[name] {
		if ns != "" && ns != h.object.Namespace {
			continue
		}
		if seen = true; o.Namespace == a.root || a.visible(h, o.Namespace) {
			return
		}
	}
	if seen {
		a.report(o, diag.Error, codeProvider, "spec.provider.name", "export it to namespace "+o.Namespace, "provider %q is the service %s, which is not exported to namespace %s: every request is refused", provider, service, o.Namespace)
		return
	}
	fix := "create it, or correct the provider in the mesh configuration"
	a.report(o, diag.Error, codeProvider, "spec.provider.name", fix, "provider %q is the service %s, which does not exist: every request is refused", provider, service)
}
