package grpc

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// provider is the name of the certificate provider in the bootstrap of an application, as Istio's agent writes it.
const provider = "default"

// meshTLS returns the mutual TLS of the mesh, with the certificate and the roots of the application's own provider.
// peers are the names that the peer may have; empty for any.
func meshTLS(peers []*matcherv3.StringMatcher) *tlsv3.CommonTlsContext {
	instance := func(name string) *tlsv3.CertificateProviderPluginInstance {
		return &tlsv3.CertificateProviderPluginInstance{InstanceName: provider, CertificateName: name}
	}
	return &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: instance("default"),
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tlsv3.CertificateValidationContext{
					CaCertificateProviderInstance: instance("ROOTCA"),
					MatchSubjectAltNames:          peers, //nolint:staticcheck // the field that gRPC reads
				},
			},
		},
	}
}

func tlsSocket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(context)}}
}
