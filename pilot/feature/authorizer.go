package feature

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// Authorizes reports whether a provider is an authorizer for requests, or else for connections. An authorizer that is
// called over HTTP decides about requests only.
func (p *ExtensionProvider) Authorizes(http bool) bool {
	if g := p.Config.GetEnvoyExtAuthzGrpc(); g != nil {
		return p.HasPort(g.Port) && IsStatus(g.StatusOnError)
	}
	h := p.Config.GetEnvoyExtAuthzHttp()
	return http && h != nil && p.HasPort(h.Port) && IsStatus(h.StatusOnError)
}

// IsStatus reports whether a text is empty or the number of a status that Envoy knows.
func IsStatus(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0 && typev3.StatusCode_name[int32(n)] != "" //nolint:gosec // parsed with 16 bits
}

// Unasked returns why no authorizer is asked about what the policies that name a provider match, or "" if one is asked.
// The providers are the ones of all policies of the workload.
func Unasked(providers []ExtensionProvider, name string, http bool) string {
	at := slices.IndexFunc(providers, func(p ExtensionProvider) bool { return p.Name == name })
	if at < 0 || len(providers) == 1 && providers[at].Authorizes(http) {
		return ""
	}
	p := &providers[at]
	g, h := p.Config.GetEnvoyExtAuthzGrpc(), p.Config.GetEnvoyExtAuthzHttp()
	service, port := cmp.Or(g.GetService(), h.GetService()), cmp.Or(g.GetPort(), h.GetPort())
	switch {
	case len(providers) > 1:
		return fmt.Sprintf("the policies of the workload name %d providers, and a workload has one", len(providers))
	case g == nil && h == nil:
		return fmt.Sprintf("the mesh configuration has no ext_authz provider %q", name)
	case g == nil && !http:
		return fmt.Sprintf("provider %q is called by HTTP, and so decides about requests only", name)
	case p.Service == nil:
		return fmt.Sprintf("the service %s of provider %q does not exist, or is not exported to the workload", service, name)
	case !p.HasPort(port):
		return fmt.Sprintf("the service %s of provider %q has no port %d", service, name, port)
	}
	return fmt.Sprintf("statusOnError of provider %q is not an HTTP status", name)
}
