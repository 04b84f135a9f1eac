package compliance

import (
	"strconv"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/servers"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New(p compliance.Policy) *feature.Feature {
	return &feature.Feature{
		Name: "compliance", Kinds: []*kinds.Kind{kinds.Gateway},
		Unsupported:     func(o *kinds.Object) []diag.Diagnostic { return unsupported(p, o.Spec.(*networkingv1.Gateway)) },
		UnsupportedMesh: unsupportedMesh,
	}
}

// unsupported returns a finding for each TLS setting of a Gateway that has no effect beside the policy.
func unsupported(p compliance.Policy, g *networkingv1.Gateway) (list []diag.Diagnostic) {
	if p == compliance.None {
		return nil
	}
	for i, s := range g.Servers {
		t := s.GetTls()
		if !servers.UseOf(s).TerminatesTLS() || t.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL {
			continue // the settings have no effect, with or without a policy
		}
		list = append(list, findings("spec.servers["+strconv.Itoa(i)+"].tls.", p.Ineffective(compliance.Settings{
			// The enums have the same numbers.
			Least:   tlsv3.TlsParameters_TlsProtocol(t.GetMinProtocolVersion()),
			Most:    tlsv3.TlsParameters_TlsProtocol(t.GetMaxProtocolVersion()),
			Ciphers: t.GetCipherSuites(),
			Curves:  t.GetEcdhCurves(),
		}))...)
	}
	return list
}

// unsupportedMesh returns a finding for each TLS setting of the mesh that has no effect beside the policy.
func unsupportedMesh(c *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	of := func(field string, t *meshv1alpha1.MeshConfig_TLSConfig) []diag.Diagnostic {
		return findings(field, c.Compliance.Ineffective(compliance.Settings{
			Least: envoy.LeastVersion(t), Ciphers: t.GetCipherSuites(), Curves: t.GetEcdhCurves(),
		}))
	}
	return append(of("meshMTLS.", changed.GetMeshMTLS()), of("tlsDefaults.", changed.GetTlsDefaults())...)
}

func findings(path string, settings []compliance.Setting) (list []diag.Diagnostic) {
	for _, s := range settings {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "NoEffect", Field: path + s.Field, Message: s.Message,
			Fix: "remove it, or unset " + compliance.Variable + " on the server",
		})
	}
	return list
}
