package gatewayapi

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

func tlsSpec(o *kinds.Object) *gatewayv1.BackendTLSPolicySpec {
	return &o.Spec.(*gatewayv1.BackendTLSPolicy).Spec
}

// secure makes the TLS settings of a BackendTLSPolicy.
func (p *backendPolicy) secure() {
	p.resolved = condition{status: "True", reason: string(gatewayv1.BackendTLSPolicyReasonResolvedRefs), message: "Configuration is valid"}
	p.validation()
	for name := range tlsSpec(p.object).Options {
		p.found(fmt.Sprintf("spec.options[%q]", name), diag.Warning, "remove it", "no option of this name is supported")
	}
}

// validation makes the TLS settings. If the server's certificate cannot be validated, connections are refused.
func (p *backendPolicy) validation() {
	v := tlsSpec(p.object).Validation
	p.tls = &networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_SIMPLE, Sni: string(v.Hostname)}
	for _, n := range v.SubjectAltNames {
		p.tls.SubjectAltNames = append(p.tls.SubjectAltNames, cmp.Or(string(n.Hostname), string(n.URI)))
	}
	if len(v.SubjectAltNames) == 0 {
		p.tls.SubjectAltNames = []string{string(v.Hostname)}
	}
	if v.WellKnownCACertificates != nil && *v.WellKnownCACertificates != "" {
		if *v.WellKnownCACertificates != gatewayv1.WellKnownCACertificatesSystem {
			message := "Unknown value for wellKnownCACertificates: " + string(*v.WellKnownCACertificates)
			p.refuse(gatewayv1.PolicyReasonInvalid, gatewayv1.PolicyReasonInvalid, message, message,
				"spec.validation.wellKnownCACertificates", "write System")
		}
		return
	}
	if len(v.CACertificateRefs) == 0 {
		p.refuse(gatewayv1.PolicyReasonInvalid, gatewayv1.PolicyReasonInvalid, "no CA certificates are named",
			"no CA certificates are named", "spec.validation", "name a ConfigMap with ca.crt, or write wellKnownCACertificates: System")
		return
	}
	const field = "spec.validation.caCertificateRefs[0]"
	if len(v.CACertificateRefs) > 1 {
		p.accepted.message += "; warning: only the first caCertificateRefs will be used"
		p.found("spec.validation.caCertificateRefs[1]", diag.Warning, "put all CA certificates into one ConfigMap",
			"only the first reference is used")
	}
	ref := v.CACertificateRefs[0]
	bad := func(reason gatewayv1.PolicyConditionReason, how, what string) {
		p.refuse(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, reason, "Certificate reference invalid: "+what, how+": "+what,
			field, "name a ConfigMap with ca.crt")
	}
	switch {
	case ref.Group == "" && ref.Kind == "Secret":
		bad(gatewayv1.BackendTLSPolicyReasonInvalidKind, "Certificate reference invalid", "unsupported reference kind: Secret")
		return
	case ref.Group != "" || ref.Kind != "ConfigMap":
		bad(gatewayv1.BackendTLSPolicyReasonInvalidKind, "Certificate reference not supported", "unsupported kind "+string(ref.Kind))
		return
	}
	key := kinds.Key{Kind: kinds.ConfigMap, Namespace: p.object.Namespace, Name: string(ref.Name)}
	o := p.looked.object(key)
	if o == nil {
		bad(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "Certificate reference not found",
			"reference "+key.Namespace+"/"+key.Name+" (of kind ConfigMap) not found")
		return
	}
	switch parsed := credentials.OfConfigMap(o.Spec.(*corev1.ConfigMap), time.Time{}); {
	case parsed.BadRoots != nil:
		bad(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "Certificate invalid", parsed.BadRoots.Error())
	case parsed.Roots == nil:
		bad(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "Certificate invalid",
			"ConfigMap "+key.Namespace+"/"+key.Name+" has no ca.crt")
	default:
		p.tls.CredentialName = "configmap://" + key.Namespace + "/" + key.Name
	}
}

// refuse records why connections cannot be validated, and makes proxies refuse them.
func (p *backendPolicy) refuse(accepted, resolved gatewayv1.PolicyConditionReason, acceptedMessage, resolvedMessage, field, fix string) {
	p.accepted = condition{status: "False", reason: string(accepted), message: acceptedMessage}
	p.resolved = condition{status: "False", reason: string(resolved), message: resolvedMessage}
	p.tls.CredentialName = names.NoCredential
	p.found(field, diag.Error, fix, acceptedMessage+": connections to the targets are refused")
}
