package authz

import (
	"strconv"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupported returns findings about parts of a policy without the intended effect.
func unsupported(o *kinds.Object) []diag.Diagnostic {
	var found []diag.Diagnostic
	value, ok := o.Annotations[kinds.AnnotationDryRun]
	if _, err := strconv.ParseBool(value); ok && err != nil {
		found = append(found, diag.Diagnostic{
			Severity: diag.Warning, Code: "InvalidValue", Field: "metadata.annotations[" + strconv.Quote(kinds.AnnotationDryRun) + "]",
			Message: strconv.Quote(value) + " is not a boolean: the policy is enforced", Fix: `write "true" or "false"`,
		})
	}
	if action(o) == securityv1.AuthorizationPolicy_CUSTOM && dryRun(o) {
		found = append(found, feature.NotImplemented("metadata.annotations["+strconv.Quote(kinds.AnnotationDryRun)+"]",
			"no authorizer is asked in a dry run: the policy has no effect", "remove it to ask the authorizer"))
	}
	return found
}

// unsupportedMesh returns findings about authorizers that cannot be asked because of their configuration.
func unsupportedMesh(c *mesh.Config, _ *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	var found []diag.Diagnostic
	for i, p := range c.GetExtensionProviders() {
		field := "extensionProviders[" + strconv.Itoa(i) + "]."
		g, h := p.GetEnvoyExtAuthzGrpc(), p.GetEnvoyExtAuthzHttp()
		status := g.GetStatusOnError()
		if field += "envoyExtAuthzGrpc"; h != nil {
			field, status = strings.TrimSuffix(field, "Grpc")+"Http", h.GetStatusOnError()
		}
		if (g != nil || h != nil) && !feature.IsStatus(status) {
			found = append(found, diag.Diagnostic{
				Severity: diag.Error, Code: "InvalidValue", Field: field + ".statusOnError",
				Message: strconv.Quote(status) + " is not an HTTP status: policies that name the provider deny all matching requests",
				Fix:     `write a number such as "503"`,
			})
		}
		if h.GetIncludeRequestBodyInCheck().GetPackAsBytes() {
			found = append(found, feature.NotImplemented(field+".includeRequestBodyInCheck.packAsBytes",
				"a provider that is called over HTTP gets the body unchanged", ""))
		}
	}
	return found
}
