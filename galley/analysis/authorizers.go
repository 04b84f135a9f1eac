package analysis

import (
	"cmp"
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
	rivals := a.newRivalAuthorizers()
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		policy := o.Spec.(*securityv1.AuthorizationPolicy)
		if policy.Action != securityv1.AuthorizationPolicy_CUSTOM {
			continue
		}
		rivals.compare(o)
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

// rivalAuthorizers finds policies of action CUSTOM that name different authorizers for one workload. Proxies ask none
// then.
type rivalAuthorizers struct {
	*owners
	first map[string]*kinds.Object // first policy for all workloads of a namespace, or for a target
}

func (a *analysis) newRivalAuthorizers() *rivalAuthorizers {
	return &rivalAuthorizers{a.newOwners(), map[string]*kinds.Object{}}
}

// compare reports a policy if one before it names another authorizer for the same workloads.
func (x *rivalAuthorizers) compare(o *kinds.Object) {
	if isDryRun(o) {
		return // no authorizer is asked
	}
	spec := o.Spec.(*securityv1.AuthorizationPolicy)
	var places []string
	labels := spec.GetSelector().GetMatchLabels()
	for _, r := range targetsOf(spec) {
		places = append(places, o.Namespace+" "+r.GetKind()+" "+r.GetName())
	}
	targets := len(places) > 0
	if !targets {
		places = []string{o.Namespace, x.root}
	}
	report := func(other *kinds.Object, where string) bool {
		if other == nil || other == o || spec.GetProvider().GetName() == provider(other) {
			return false
		}
		x.report(o, diag.Error, codeAuthorizers, "spec.provider.name", "name one authorizer in both",
			"%s has the authorizer %q for %s: a workload has one authorizer, so what the rules of either match is refused",
			other, provider(other), where)
		return true
	}
	for _, place := range places {
		if report(x.first[place], "the same workloads") {
			return
		}
	}
	if targets || len(labels) == 0 {
		x.first[places[0]] = cmp.Or(x.first[places[0]], o)
	}
	if targets {
		return
	}
	spaces := []string{o.Namespace}
	if o.Namespace == x.root {
		spaces = x.namespaces
	}
	for _, l := range x.claim(o, labels, "", spaces...) {
		if report(l.winner, l.at.object.String()) {
			return
		}
	}
}

// provider returns the name of the authorizer of a policy.
func provider(o *kinds.Object) string {
	return o.Spec.(*securityv1.AuthorizationPolicy).GetProvider().GetName()
}

// refused is the effect of an authorizer that is not available.
const refused = "what the rules match is refused"

// authorizer reports an authorizer whose service does not exist or is not visible to the workloads of a policy. service
// is a host or namespace/host.
func (a *analysis) authorizer(o *kinds.Object, provider, service string, port uint32) {
	if problem, fix := a.providerService(o, service, port); problem != "" {
		a.report(o, diag.Error, codeProvider, "spec.provider.name", fix,
			"provider %q is the service %s, which %s: %s", provider, service, problem, refused)
	}
}

// providerService returns what is wrong with the service of a provider that an object names, or "". service is a host
// or namespace/host.
func (a *analysis) providerService(o *kinds.Object, service string, port uint32) (problem, fix string) {
	if len(a.services) == 0 { // the objects include no Services
		return "", ""
	}
	ns, name, ok := strings.Cut(service, "/")
	if !ok {
		ns, name = "", service
	}
	problem, fix = "does not exist", "create it, or correct the provider in the mesh configuration"
	for _, h := range a.hosts[name] {
		switch {
		case ns != "" && ns != h.object.Namespace:
		case o.Namespace != a.root && !a.visible(h, o.Namespace):
			problem, fix = "is not exported to namespace "+o.Namespace, "export it"
		case !slices.Contains(h.ports, port):
			problem, fix = "has no port "+strconv.Itoa(int(port)), "correct the provider in the mesh configuration"
		default:
			return "", ""
		}
	}
	return problem, fix
}
