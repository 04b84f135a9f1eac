package gatewayapi

import (
	"fmt"

	networkingv1 "istio.io/api/networking/v1"
	typev1beta1 "istio.io/api/type/v1beta1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// resolveCertificate finds the certificate that a Gateway presents to backends with a BackendTLSPolicy.
func (g *gateway) resolveCertificate() {
	t := gatewaySpec(g.object).TLS
	if t == nil || t.Backend == nil || t.Backend.ClientCertificateRef == nil {
		return
	}
	const field = "spec.tls.backend.clientCertificateRef"
	ref := *t.Backend.ClientCertificateRef
	group, kind, ns := groupOr(ref.Group, ""), kindOr(ref.Kind, "Secret"), namespaceOr(ref.Namespace, g.object.Namespace)
	bad := func(reason gatewayv1.GatewayConditionReason, fix, message string) {
		c := no(string(reason), message)
		g.unresolved = &c
		g.found(g.object, diag.Error, field, fix, message+": backends see no certificate of the Gateway")
	}
	if group != "" || kind != "Secret" {
		bad(gatewayv1.GatewayReasonInvalidClientCertificateRef, "name a Secret",
			fmt.Sprintf("invalid client certificate reference %s/%s/%s, only Secret is allowed", group, kind, ref.Name))
		return
	}
	if !g.looked.granted(reference{kinds.KubeGateway.Group, g.object.Kind.Name, g.object.Namespace, "", "Secret", ns, string(ref.Name)}) {
		bad(gatewayv1.GatewayReasonRefNotPermitted, "add a ReferenceGrant in namespace "+ns,
			fmt.Sprintf("clientCertificateRef %s/%s not accessible to a Gateway in namespace %q (missing a ReferenceGrant?)", ns, ref.Name,
				g.object.Namespace))
		return
	}
	o := g.looked.object(kinds.Key{Kind: kinds.Secret, Namespace: ns, Name: string(ref.Name)})
	if o == nil {
		bad(gatewayv1.GatewayReasonInvalidClientCertificateRef, "add the Secret",
			fmt.Sprintf("invalid client certificate reference, secret %s/%s not found", ns, ref.Name))
		return
	}
	if err := certificateError(o); err != "" {
		bad(gatewayv1.GatewayReasonInvalidClientCertificateRef, "mend the Secret",
			fmt.Sprintf("invalid client certificate reference, the certificate of secret %s/%s is malformed: %s", ns, ref.Name, err))
		return
	}
	g.certificate = "kubernetes-gateway://" + ns + "/" + string(ref.Name)
	resource, _ := names.Credential(g.certificate)
	g.share(ns, resource)
}

// clientRules returns the DestinationRules of a target with TLS settings for the proxies of a Gateway, with its client
// certificate.
func (g *gateway) clientRules(s *targetedService) (list []derive.Derived) {
	if !s.secured {
		return nil
	}
	for i, w := range g.workloads {
		for _, d := range s.rules {
			of := d.Object.Spec.(*networkingv1.DestinationRule)
			list = append(list, derive.Derived{
				Object: &kinds.Object{
					Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: g.object.Namespace,
						Name: fmt.Sprintf("%s~%d~%s~%s", g.object.Name, i, d.Object.Namespace, d.Object.Name)},
					Created: g.object.Created, Extra: &kinds.RuleExtra{ClientCertificate: g.certificate},
					Spec: &networkingv1.DestinationRule{Host: of.Host, ExportTo: []string{"."},
						WorkloadSelector: &typev1beta1.WorkloadSelector{MatchLabels: w.Labels}, TrafficPolicy: of.TrafficPolicy},
				},
				Origin: g.object.Key,
			})
		}
	}
	return list
}
