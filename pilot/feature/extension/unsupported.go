package extension

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupported returns findings about fields that have no effect.
func unsupported(o *kinds.Object) []diag.Diagnostic {
	found := feature.Unsupported("spec", o.Spec.(proto.Message), lacks)
	add := func(field, message, fix string) {
		found = append(found, diag.Diagnostic{Severity: diag.Warning, Code: "NoEffect", Field: field, Message: message, Fix: fix})
	}
	refs := o.Spec.(interface {
		GetTargetRefs() []*typev1beta1.PolicyTargetReference
	}).GetTargetRefs()
	for i, r := range feature.Targets(o) {
		if !isGateway(r) {
			field := "spec.targetRef"
			if i < len(refs) {
				field = "spec.targetRefs[" + strconv.Itoa(i) + "]"
			}
			add(field, "what targets a "+r.GetKind()+" applies to waypoints only, which are not supported", "use selector, or target a Gateway")
		}
	}
	p, field := read(o), "spec"
	if p.wasm == nil {
		return found
	}
	if o.Kind == kinds.TrafficExtension {
		field += ".wasm"
	}
	if strings.HasPrefix(p.wasm.GetUrl(), schemeFile) {
		const message, fix = "the module is a file beside the proxy, which is not fetched", "remove it, or let url be oci:// or https://"
		if p.wasm.GetImagePullPolicy() != extensionsv1alpha1.PullPolicy_UNSPECIFIED_POLICY {
			add(field+".imagePullPolicy", message, fix)
		}
		if p.wasm.GetSha256() != "" {
			add(field+".sha256", message, fix)
		}
	}
	return found
}

// lacks returns the message and the remedy for an unsupported field, see feature.Unsupported.
func lacks(field string) (message, fix string) {
	switch field {
	case "WasmPlugin.verificationKey", "WasmConfig.verificationKey":
		message, fix = "signatures of modules are not verified", "use sha256"
	case "WasmPlugin.imagePullSecret", "WasmConfig.imagePullSecret":
		message = "agents fetch images without credentials; if the registry requires some, the module is missing, and failStrategy " +
			"decides about the traffic"
		fix = "use a registry that requires none"
	}
	return message, fix
}
