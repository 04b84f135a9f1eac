package translate

import (
	"strconv"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/servers"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// Unsupported returns a finding for each unsupported field of an object that translation itself reads, not a feature.
func Unsupported(o *kinds.Object) []diag.Diagnostic {
	switch spec := o.Spec.(type) {
	case *networkingv1.Sidecar:
		return append(feature.Unsupported("spec", spec, lacks), ingressWithoutFiles(spec)...)
	case *networkingv1.Gateway:
		return append(feature.Unsupported("spec", spec, lacks), unusableServers(spec)...)
	}
	return nil
}

// lacks returns the message and the remedy for an unsupported field, see feature.Unsupported.
func lacks(field string) (message, fix string) {
	switch field {
	case "SidecarPort.targetPort", "Port.targetPort", "Server.defaultEndpoint":
		message = "nobody reads it"
	}
	return message, fix
}

// ingressWithoutFiles returns findings about ingress listeners of a Sidecar whose TLS does not name its files. Package
// analysis reports those of ports where the mesh's own mutual TLS is on.
func ingressWithoutFiles(s *networkingv1.Sidecar) (list []diag.Diagnostic) {
	for i, l := range s.Ingress {
		if t := l.Tls; t != nil && (t.ServerCertificate == "" || t.PrivateKey == "") {
			list = append(list, feature.NotImplemented("spec.ingress["+strconv.Itoa(i)+"].tls",
				"it needs certificates in files: without them the port accepts only the mesh's own mutual TLS",
				"write serverCertificate and privateKey, or let a gateway terminate TLS"))
		} else if field := servers.Unenforced(t); t != nil && field != "" {
			list = append(list, feature.NotImplemented("spec.ingress["+strconv.Itoa(i)+"].tls."+field,
				"proxies cannot enforce it: the port accepts only the mesh's own mutual TLS", "see what the same field of a Gateway may have"))
		}
	}
	return list
}

// unusableServers returns findings about servers of a Gateway that stay closed, or that are opened in another way than
// configured.
func unusableServers(g *networkingv1.Gateway) []diag.Diagnostic {
	var list []diag.Diagnostic
	add := func(server int, field, message, fix string) {
		list = append(list, feature.NotImplemented("spec.servers["+strconv.Itoa(server)+"]."+field, message, fix))
	}
	for i, s := range g.Servers {
		use := servers.UseOf(s)
		t := s.GetTls()
		switch {
		case use == servers.Closed && s.GetTls() == nil && s.GetPort().GetProtocol() != "":
			add(i, "port.protocol", "the port stays closed", "use TCP, or TLS with settings")
		case use == servers.Closed && servers.Unenforced(t) != "":
			list = append(list, unenforced(i, servers.Unenforced(t)))
		case use == servers.Closed:
			add(i, "port.protocol", "the port stays closed", "use another protocol")
		}
		for j, h := range s.Hosts {
			if _, host, ok := strings.Cut(h, "/"); ok {
				h = host
			}
			if use.TLS() && use != servers.AutoPassthrough && scope.IsPartial(h) {
				add(i, "hosts["+strconv.Itoa(j)+"]", "proxies cannot match it as a TLS server name: its star ends within a label",
					"write *. and the rest")
			}
		}
		if !use.TerminatesTLS() {
			continue
		}
		for j, c := range t.GetCipherSuites() {
			if !names.HasCipher(c) {
				add(i, "tls.cipherSuites["+strconv.Itoa(j)+"]", "proxies do not know it, so it is ignored", nameCipher)
			}
		}
		for j, c := range t.GetEcdhCurves() {
			if !names.HasCurve(c) {
				add(i, "tls.ecdhCurves["+strconv.Itoa(j)+"]", "proxies do not know it, so it is ignored", nameCurve)
			}
		}
		switch t.GetMode() {
		case networkingv1alpha3.ServerTLSSettings_SIMPLE:
			if len(t.GetVerifyCertificateHash())+len(t.GetVerifyCertificateSpki()) > 0 ||
				t.GetCaCertificates() != "" || t.GetCaCrl() != "" || t.GetCaCertCredentialName() != "" || t.GetInsecureSkipVerify().GetValue() {
				add(i, "tls", "clients present no certificate, so it has no effect", "use mode MUTUAL")
			}
		case networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL:
			if t.GetMinProtocolVersion() != 0 || t.GetMaxProtocolVersion() != 0 || len(t.GetCipherSuites())+len(t.GetEcdhCurves()) > 0 {
				add(i, "tls", "the mesh's own TLS uses Envoy's versions, cipher suites and curves", "remove them")
			}
			if t.GetInsecureSkipVerify().GetValue() {
				add(i, "tls.insecureSkipVerify", "the mesh's own TLS verifies every certificate", "remove it")
			}
		}
	}
	return list
}

// Remedies for names that proxies do not know.
const (
	nameCipher = "use OpenSSL's name of a TLS 1.2 cipher suite"
	nameCurve  = "name P-256, P-384, P-521, X25519 or X25519MLKEM768"
)

// unenforced returns the finding about a server that stays closed because of servers.Unenforced.
func unenforced(server int, field string) diag.Diagnostic {
	d := feature.NotImplemented("spec.servers["+strconv.Itoa(server)+"].tls."+field, "", "")
	switch d.Severity = diag.Error; field {
	case "cipherSuites":
		d.Message, d.Fix = "proxies know none of the cipher suites: the server accepts no connections", nameCipher
	case "ecdhCurves":
		d.Message, d.Fix = "proxies know none of the curves: the server accepts no connections", nameCurve
	default:
		d.Message, d.Fix = "mode SIMPLE verifies no client certificate: the server accepts no connections",
			"use mode MUTUAL, or remove subjectAltNames"
	}
	return d
}

// UnsupportedMesh returns a finding for each unsupported field of a mesh configuration that translation itself reads.
// changed holds the differences from the defaults.
func UnsupportedMesh(c *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	list := feature.Unsupported("", changed, func(field string) (message, fix string) {
		if field == "OutboundTrafficPolicy.tls" &&
			c.GetOutboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
			return "", ""
		}
		if field == "MeshConfig.serviceEntryVisibility" && c.GetServiceEntryVisibility().GetApplyToSidecars() {
			return "", ""
		}
		return lacksMesh(field)
	})
	const inbound = "defaultInboundHttpRetryPolicy"
	return append(list, feature.Unsupported(inbound, changed.GetDefaultInboundHttpRetryPolicy(), lacksInboundRetries)...)
}

// lacksInboundRetries returns the message and the remedy for a field without effect on requests to the workload itself.
func lacksInboundRetries(field string) (message, fix string) {
	switch field {
	case "HTTPRetry.perTryTimeout", "HTTPRetry.retryRemoteLocalities", "HTTPRetry.retryIgnorePreviousHosts":
		message = "requests go to the workload alone, and without a time limit"
	}
	return message, fix
}

// lacksMesh returns the message and the remedy for an unsupported field of a mesh configuration.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "MeshConfig.hboneIdleTimeout", "MeshConfig.serviceScopeConfigs":
		message = "ambient mode is not supported"
	case "MeshConfig.serviceEntryVisibility":
		message, fix = "without applyToSidecars it limits only proxies of ambient mode", "add applyToSidecars: true, or remove it"
	case "OutboundTrafficPolicy.tls":
		message, fix = "calls to hosts without a service are passed on unchanged", "use mode ALLOW_ANY_DYNAMIC_DNS"
	case "ConfigSource.subscribedResources":
		message = "all kinds are read"
	}
	return message, fix
}
