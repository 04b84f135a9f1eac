package credentials

import (
	"fmt"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Reference is a resource of SDS that an object names and the control plane serves.
type Reference struct {
	Resource string // name of the resource
	Field    string // field of the object that names it
	Own      bool   // a certificate with its key, instead of CA certificates
}

// Names returns the names of the Secrets or ConfigMaps, in any namespace, that a resource may be made from. The first
// that exists is used.
func (r Reference) Names() []string {
	s, ok := names.ParseSecret(r.Resource, "own")
	if !ok {
		return nil
	}
	return s.Objects()
}

// Misnamed reports whether a resource must be a certificate but has the name of a resource with CA certificates.
func (r Reference) Misnamed() bool {
	s, ok := names.ParseSecret(r.Resource, "own")
	return ok && s.CA && r.Own
}

// References returns the resources that a Gateway or a DestinationRule names.
func References(o *kinds.Object) []Reference {
	switch spec := o.Spec.(type) {
	case *networkingv1.Gateway:
		return ofGateway(spec)
	case *networkingv1.DestinationRule:
		list := ofDestinationRule(spec)
		if e, ok := o.Extra.(*kinds.RuleExtra); ok && e.ClientCertificate != "" {
			if resource, served := names.Credential(e.ClientCertificate); served {
				list = append(list, Reference{resource, "spec.tls.backend.clientCertificateRef", true})
			}
		}
		return list
	}
	return nil
}

func ofGateway(g *networkingv1.Gateway) (list []Reference) {
	for i, s := range g.Servers {
		list = append(list, OfServer(s.GetTls(), fmt.Sprintf("spec.servers[%d].tls", i))...)
	}
	return list
}

// OfServer returns the resources that the TLS settings of a server name, which are at a field.
func OfServer(t *networkingv1alpha3.ServerTLSSettings, field string) (list []Reference) {
	add := func(at string, own bool, resource string, served bool) {
		if served {
			list = append(list, Reference{resource, field + "." + at, own})
		}
	}
	certificate := func(at, name string) {
		resource, served := names.Credential(name)
		add(at, true, resource, served)
	}
	mutual := false
	switch t.GetMode() {
	case networkingv1alpha3.ServerTLSSettings_SIMPLE:
	case networkingv1alpha3.ServerTLSSettings_MUTUAL, networkingv1alpha3.ServerTLSSettings_OPTIONAL_MUTUAL:
		mutual = true
	default:
		return nil
	}
	name, at := t.GetCredentialName(), "credentialName"
	for i, n := range t.GetCredentialNames() {
		certificate(fmt.Sprintf("credentialNames[%d]", i), n)
		if i == 0 {
			name, at = n, "credentialNames[0]"
		}
	}
	if len(t.GetCredentialNames()) == 0 && name != "" {
		certificate(at, name)
	}
	switch named := t.GetCaCertCredentialName(); {
	case mutual && named != "":
		resource, served := names.NamedCACredential(named)
		add("caCertCredentialName", false, resource, served)
	case mutual && name != "":
		resource, served := names.CACredential(name)
		add(at, false, resource, served)
	}
	return list
}

func ofDestinationRule(r *networkingv1.DestinationRule) []Reference {
	list := ofPolicy(r.GetTrafficPolicy(), "spec.trafficPolicy")
	for i, s := range r.GetSubsets() {
		list = append(list, ofPolicy(s.GetTrafficPolicy(), fmt.Sprintf("spec.subsets[%d].trafficPolicy", i))...)
	}
	return list
}

func ofPolicy(p *networkingv1alpha3.TrafficPolicy, field string) []Reference {
	list := ofClient(p.GetTls(), field+".tls")
	for i, port := range p.GetPortLevelSettings() {
		list = append(list, ofClient(port.GetTls(), fmt.Sprintf("%s.portLevelSettings[%d].tls", field, i))...)
	}
	return list
}

func ofClient(t *networkingv1alpha3.ClientTLSSettings, field string) (list []Reference) {
	add := func(at string, own bool, resource string, served bool) {
		if served {
			list = append(list, Reference{resource, field + "." + at, own})
		}
	}
	name, ca := t.GetCredentialName(), t.GetCaCertCredentialName()
	switch t.GetMode() {
	case networkingv1alpha3.ClientTLSSettings_MUTUAL:
		if name != "" {
			resource, served := names.Credential(name)
			add("credentialName", true, resource, served)
		}
	case networkingv1alpha3.ClientTLSSettings_SIMPLE:
	default:
		return nil
	}
	switch {
	case t.GetInsecureSkipVerify().GetValue():
	case ca != "" && name != names.NoCredential:
		resource, served := names.NamedCACredential(ca)
		add("caCertCredentialName", false, resource, served)
	case name != "":
		resource, served := names.CACredential(name)
		add("credentialName", false, resource, served)
	}
	return list
}
