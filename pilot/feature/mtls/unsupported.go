package mtls

import (
	"fmt"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupportedMesh returns Feature.UnsupportedMesh. Proxies trust roots that are sent for every trust domain, because
// they have one list.
func unsupportedMesh(sendRoots bool) func(*mesh.Config, *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	return func(_ *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
		list := feature.Unsupported("", changed, func(field string) (message, fix string) {
			switch {
			case sendRoots && field == "MeshConfig.caCertificates":
				return "", ""
			case sendRoots && field == "CertificateData.trustDomains":
				return "proxies trust these roots for every trust domain, this server only for these",
					"list only roots that may issue certificates for every workload of the mesh"
			}
			return lacksMesh(field)
		})
		list = append(list, unknownParameters("meshMTLS", changed.GetMeshMTLS())...)
		return append(list, unknownParameters("tlsDefaults", changed.GetTlsDefaults())...)
	}
}

// unknownParameters returns a finding for each cipher suite and curve that proxies do not know.
func unknownParameters(field string, c *meshv1alpha1.MeshConfig_TLSConfig) (list []diag.Diagnostic) {
	for i, name := range c.GetCipherSuites() {
		if !names.HasCipher(name) {
			list = append(list, feature.NotImplemented(fmt.Sprintf("%s.cipherSuites[%d]", field, i),
				"proxies do not know it, so it is ignored", "use OpenSSL's name of a TLS 1.2 cipher suite"))
		}
	}
	for i, name := range c.GetEcdhCurves() {
		if !names.HasCurve(name) {
			list = append(list, feature.NotImplemented(fmt.Sprintf("%s.ecdhCurves[%d]", field, i),
				"proxies do not know it, so it is ignored", "name P-256, P-384, P-521, X25519 or X25519MLKEM768"))
		}
	}
	return list
}

// lacksMesh returns the message and the remedy for an unsupported field of a mesh configuration, see
// feature.Unsupported.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "MeshConfig.caCertificates":
		message = "proxies do not trust these roots; only this server does, and Kubernetes signers get their roots from here"
		fix = "set ISTIO_MULTIROOT_MESH=true on the server so that proxies trust them"
	case "MeshConfig.ca", "MeshConfig.certificates":
		message = "no certificates are requested for it"
	case "ExtensionProvider.sds":
		message = "certificates come from no other provider"
	}
	return message, fix
}
