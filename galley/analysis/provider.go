package analysis

import (
	"slices"
	"strconv"
	"strings"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// authorizers reports policies of action CUSTOM whose authorizer is not available, so that they refuse all requests
// that their rules match.
func (a *analysis) authorizers() {
	var all []string // names of authorizers
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
		switch g, h := p.GetEnvoyExtAuthzGrpc(), p.GetEnvoyExtAuthzHttp(); {
		case g != nil:
			a.authorizer(o, name, g.Service, g.Port)
		case h != nil:
			a.authorizer(o, name, h.Service, h.Port)
		default:
			fix := "define it in extensionProviders of the mesh configuration"
			if meant := a.nearest(name, all); meant != "" {
				fix = diag.DidYouMean(meant)
			}
			a.report(o, diag.Error, codeProvider, "spec.provider.name", fix,
				"the mesh configuration has no ext_authz provider %q: %s", name, refused)
		}
	}
}

// refused is the effect of an authorizer that is not available.
const refused = "what the rules match is refused"

// authorizer reports an authorizer whose service does not exist or is not visible to the workloads of a policy. service
// is a host or namespace/host.
func (a *analysis) authorizer(o *kinds.Object, provider, service string, port uint32) {
	if len(a.services) == 0 { // the objects include no Services
		return
	}
	ns, name, ok := strings.Cut(service, "/")
	if !ok {
		ns, name = "", service
	}
	problem, fix := "does not exist", "create it, or correct the provider in the mesh configuration"
	for _, h := range a.hosts[name] {
		switch {
		case ns != "" && ns != h.object.Namespace:
		case o.Namespace != a.root && !a.visible(h, o.Namespace):
			problem, fix = "is not exported to namespace "+o.Namespace, "export it"
		case !slices.Contains(h.ports, port):
			problem, fix = "has no port "+strconv.Itoa(int(port)), "correct the provider in the mesh configuration"
		default:
			return
		}
	}
	a.report(o, diag.Error, codeProvider, "spec.provider.name", fix,
		"provider %q is the service %s, which %s: %s", provider, service, problem, refused)
}
