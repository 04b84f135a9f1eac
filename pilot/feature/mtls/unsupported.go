package mtls

import (
	"fmt"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupportedMesh returns Feature.UnsupportedMesh. Sent roots count for every trust domain: proxies have one list.
func unsupportedMesh(sendRoots bool) func(*mesh.Config, *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	return func(_ *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
		list := feature.Unsupported("", changed, func(field string) (message, fix string) {
			switch {
			case sendRoots && field == "MeshConfig.caCertificates":
				return "", ""
			case sendRoots && field == "CertificateData.trustDomains":
				return "proxies trust these roots for every trust domain; this server does for these alone", "write here only roots that may vouch for every workload of the mesh"
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
			list = append(list, feature.NotImplemented(fmt.Sprintf("%s.cipherSuites[%d]", field, i), "proxies do not know it, and it is left out", "name a cipher suite of TLS 1.2 as OpenSSL does"))
		}
	}
	for i, name := range c.GetEcdhCurves() {
		if !names.HasCurve(name) {
			list = append(list, feature.NotImplemented(fmt.Sprintf("%s.ecdhCurves[%d]", field, i), "proxies do not know it, and it is left out", "name P-256, P-384, P-521, X25519 or X25519MLKEM768"))
		}
	}
	return list
}

// lacksMesh returns what is not done of a field of a mesh configuration, as feature.Unsupported takes it.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "MeshConfig.caCertificates":
		message = "proxies trust no further roots; this server does, and signers of Kubernetes have theirs from here"
		fix = "set ISTIO_MULTIROOT_MESH=true at the server to have proxies trust them"
	case "MeshConfig.ca", "MeshConfig.certificates":
		message = "no certificates are requested for it"
	case "ExtensionProvider.sds":
		message = "certificates come from no other provider"
	}
	return message, fix
}
