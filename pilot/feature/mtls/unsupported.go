package mtls

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

func unsupportedMesh(_ *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	return feature.Unsupported("", changed, lacksMesh)
}

// lacksMesh returns what is not done of a field of a mesh configuration, as feature.Unsupported takes it.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "MeshConfig.meshMTLS", "MeshConfig.tlsDefaults":
		message = "the versions and ciphers of TLS stay as they are"
	case "MeshConfig.caCertificates":
		message = "proxies trust no further roots; this server does, and signers of Kubernetes have theirs from here"
	case "MeshConfig.ca", "MeshConfig.certificates":
		message = "no certificates are requested for it"
	case "ExtensionProvider.sds":
		message = "certificates come from no other provider"
	case "ProxyConfig.privateKeyProvider":
		message = "private keys are used by Envoy itself"
	}
	return message, fix
}
