package mtls

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// ciphers are the cipher suites of TLS 1.2 that inbound listeners accept if the mesh configuration names none.
var ciphers = []string{
	"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
	"AES256-GCM-SHA384", "AES128-GCM-SHA256",
}

// Messages that all contexts share, because a mesh has a thousand contexts. They must not be changed.
var (
	certificates = []*tlsv3.SdsSecretConfig{envoy.AgentSecret("default")}
	roots        = envoy.AgentSecret("ROOTCA")
)

// Downstream requires a client certificate of one of the mesh's trust domains, or of any.
func (t transport) Downstream(d feature.Downstream) *corev3.TransportSocket {
	alpn := []string{"h2", "http/1.1"}
	if !d.HTTP && d.PeerExchange {
		alpn = append([]string{names.PeerExchange}, alpn...)
	}
	var sans []*matcherv3.StringMatcher
	if !t.anyTrustDomain {
		for _, td := range d.Mesh.TrustDomains() {
			sans = append(sans, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + td + "/"}})
		}
	}
	common := commonContext(alpn, sans)
	if d.Files.Chain != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{envoy.FileCertificate(d.Files.Chain, d.Files.Key)}
	}
	if d.Files.Roots != "" {
		common.GetCombinedValidationContext().ValidationContextSdsSecretConfig = envoy.FileRoots(d.Files.Roots)
	}
	wanted := d.Mesh.GetMeshMTLS()
	envoy.Restrict(common.TlsParams, wanted.GetCipherSuites(), wanted.GetEcdhCurves())
	if len(wanted.GetCipherSuites()) == 0 {
		common.TlsParams.CipherSuites = ciphers
	}
	if envoy.LeastVersion(wanted) == tlsv3.TlsParameters_TLSv1_3 {
		common.TlsParams.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	d.Mesh.Compliance.Restrict(common)
	return socket(&tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: envoy.Bool(true)})
}

// Upstream requires that the peer has exactly one of the identities.
func (transport) Upstream(u feature.Upstream) *corev3.TransportSocket {
	alpn := []string{"istio"}
	if u.HTTP2 {
		alpn = append(alpn, "h2")
	}
	if u.PeerExchange {
		alpn = append([]string{names.PeerExchange}, alpn...)
	}
	var sans []*matcherv3.StringMatcher
	for _, id := range u.Identities {
		sans = append(sans, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: id}})
	}
	common := commonContext(alpn, sans)
	u.Compliance.Restrict(common)
	return socket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: u.SNI})
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
				// The untyped field is the one that istiod sends, and that every supported Envoy accepts.
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchSubjectAltNames: sans}, //nolint:staticcheck
				ValidationContextSdsSecretConfig: roots,
			},
		},
		AlpnProtocols: alpn,
	}
}

func socket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(context)}}
}
