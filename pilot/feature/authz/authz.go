package authz

import (
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{
		Name:  "authz",
		Kinds: []*kinds.Kind{kinds.AuthorizationPolicy, kinds.RequestAuthentication},
		Half:  feature.InboundHalf,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			return feature.Policies(r, namespace, closes, kinds.AuthorizationPolicy, kinds.RequestAuthentication)
		},
		Unsupported: unsupported, UnsupportedMesh: unsupportedMesh,
		Hooks: feature.Hooks{HTTPFilters: httpFilters, NetworkFilters: networkFilters},
	}
}

// closes reports whether a policy applies to a workload and may refuse a request. One that only logs does not, nor does a
// dry run.
func closes(o *kinds.Object, w feature.Workload) bool {
	if p, ok := o.Spec.(*securityv1.AuthorizationPolicy); ok && (p.Action == securityv1.AuthorizationPolicy_AUDIT || dryRun(o)) {
		return false
	}
	return feature.Matches(o, w)
}

// dryRun reports whether an AuthorizationPolicy is to log what it would refuse, and to refuse nothing. A value that is no
// boolean is not an annotation that anybody meant to open anything by.
func dryRun(o *kinds.Object) bool {
	dry, err := strconv.ParseBool(o.Annotations[kinds.AnnotationDryRun])
	return err == nil && dry
}

// unsupported returns the finding about a policy, which this version cannot evaluate.
func unsupported(o *kinds.Object) []diag.Diagnostic {
	notImplemented := func(field, message, fix string) []diag.Diagnostic {
		return []diag.Diagnostic{feature.NotImplemented(field, message, fix)}
	}
	p, ok := o.Spec.(*securityv1.AuthorizationPolicy)
	switch {
	case ok && dryRun(o):
		field := "metadata.annotations[" + strconv.Quote(kinds.AnnotationDryRun) + "]"
		return notImplemented(field, "nothing is refused, and what the policy would refuse is not logged", "")
	case ok && p.Action == securityv1.AuthorizationPolicy_AUDIT:
		return notImplemented("", "no request is logged", "")
	}
	return notImplemented("", "every request to the workloads that it selects is refused", "remove it to let requests through without it")
}

// unsupportedMesh returns the findings about providers that policies may name.
func unsupportedMesh(c *mesh.Config) []diag.Diagnostic {
	return feature.Unsupported("", c.Changed(), func(field string) (message, fix string) {
		switch field {
		case "ExtensionProvider.envoyExtAuthzHttp", "ExtensionProvider.envoyExtAuthzGrpc":
			message = "this provider is not asked: a policy of action CUSTOM refuses every request"
		}
		return message, fix
	})
}

// noPrincipal returns rules that allow nobody, so that nothing passes.
func noPrincipal() *rbacv3.RBAC { return &rbacv3.RBAC{} }

// httpFilters returns a filter that answers every request with 403.
func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	if c.Selection.Empty() || c.Direction == feature.Outbound {
		return nil
	}
	return []*hcmv3.HttpFilter{envoy.HTTPFilter("envoy.filters.http.rbac", envoy.Any(&httprbacv3.RBAC{Rules: noPrincipal()}))}
}

// networkFilters returns a filter that closes every connection.
func networkFilters(c feature.Chain) []*listenerv3.Filter {
	if c.Selection.Empty() || c.HTTP || c.Direction != feature.Inbound {
		return nil
	}
	return []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.rbac", envoy.Any(&tcprbacv3.RBAC{Rules: noPrincipal(), StatPrefix: "tcp."}))}
}
