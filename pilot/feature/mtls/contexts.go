package mtls

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// PeerExchange is the ALPN protocol of TCP connections between proxies that exchange metadata before their payload.
const PeerExchange = "istio-peer-exchange"

// ALPN protocols of the mesh's own mTLS, by what it carries. No other TLS uses them.
var (
	MeshHTTP = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	MeshTCP  = []string{PeerExchange, "istio"}
	Mesh     = []string{"istio", PeerExchange, "istio-http/1.0", "istio-http/1.1", "istio-h2"}
)

// The cipher suites of TLS 1.2 that inbound listeners take.
var ciphers = []string{
	"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
	"AES256-GCM-SHA384", "AES128-GCM-SHA256",
}

// Messages that all contexts share: a mesh has a thousand contexts. They must not be changed.
var (
	certificates = []*tlsv3.SdsSecretConfig{envoy.AgentSecret("default")}
	roots        = envoy.AgentSecret("ROOTCA")
	plaintext    = &corev3.TransportSocket{
		Name: "envoy.transport_sockets.raw_buffer", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(&rawbufferv3.RawBuffer{})},
	}
)

// Downstream returns the transport socket of inbound chains. It requires a client certificate of one of the trust
// domains. http has the chain carry HTTP; with peerExchange the proxy exchanges metadata on TCP connections.
func Downstream(trustDomains []string, http, peerExchange bool) *corev3.TransportSocket {
	alpn := []string{"h2", "http/1.1"}
	if !http && peerExchange {
		alpn = append([]string{PeerExchange}, alpn...)
	}
	var sans []*matcherv3.StringMatcher
	for _, td := range trustDomains {
		sans = append(sans, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + td + "/"}})
	}
	common := commonContext(alpn, sans)
	common.TlsParams.CipherSuites = ciphers
	return socket(&tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: envoy.Bool(true)})
}

// Upstream returns the transport socket with which a proxy calls others by mTLS. identities are the SPIFFE IDs that the
// other side may have; without any, every identity of the mesh is accepted.
func Upstream(sni string, identities []string, http2, peerExchange bool) *corev3.TransportSocket {
	alpn := []string{"istio"}
	if http2 {
		alpn = append(alpn, "h2")
	}
	if peerExchange {
		alpn = append([]string{PeerExchange}, alpn...)
	}
	var sans []*matcherv3.StringMatcher
	for _, id := range identities {
		sans = append(sans, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: id}})
	}
	return socket(&tlsv3.UpstreamTlsContext{CommonTlsContext: commonContext(alpn, sans), Sni: sni})
}

func commonContext(alpn []string, sans []*matcherv3.StringMatcher) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
			TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		TlsCertificateSdsSecretConfigs: certificates,
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				// The untyped field: what the real istiod sends, and what every supported Envoy takes.
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchSubjectAltNames: sans}, //nolint:staticcheck
				ValidationContextSdsSecretConfig: roots,
			},
		},
		AlpnProtocols: alpn,
	}
}

func socket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(context)}}
}

// Plaintext returns the transport socket without TLS. It is shared, and must not be changed.
func Plaintext() *corev3.TransportSocket { return plaintext }
