package lds

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// serverTLS returns the transport socket by which a server of a gateway terminates TLS. tcp says that the content is
// not HTTP. The server offers the protocols that its settings name, or else those of HTTP.
func serverTLS(c proxyContext, t *networkingv1alpha3.ServerTLSSettings, tcp bool) *corev3.TransportSocket {
	alpn := []string{"h2", "http/1.1"}
	if tcp && t.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL && c.capabilities.Has(node.NetworkMetadataExchange) {
		alpn = append([]string{names.PeerExchange}, alpn...)
	}
	if own := t.GetAlpnProtocols(); len(own) > 0 {
		alpn = own
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(serverContext(c, t, alpn))}}
}

// serverQUIC returns the transport socket by which a server of a gateway accepts QUIC, with the same certificates.
func serverQUIC(c proxyContext, t *networkingv1alpha3.ServerTLSSettings) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.quic", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: envoy.Any(&quicv3.QuicDownstreamTransport{DownstreamTlsContext: serverContext(c, t, []string{"h3"})}),
	}}
}

// serverContext returns the TLS context of a server of a gateway. alpn are the protocols that it offers.
func serverContext(c proxyContext, t *networkingv1alpha3.ServerTLSSettings, alpn []string) *tlsv3.DownstreamTlsContext {
	mode := t.GetMode()
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParameters(c.mesh.GetTlsDefaults(), t), AlpnProtocols: alpn}
	c.mesh.Compliance.Restrict(common)
	mutual := mode == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL
	common.TlsCertificateSdsSecretConfigs = serverCertificates(c.tuning.ServerFiles, t)
	if mutual || mode == networkingv1alpha3.ServerTLSSettings_MUTUAL || mode == networkingv1alpha3.ServerTLSSettings_OPTIONAL_MUTUAL {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         clientValidation(t),
				ValidationContextSdsSecretConfig: clientRoots(c.tuning.ServerFiles, t),
			},
		}
	}
	return &tlsv3.DownstreamTlsContext{
		CommonTlsContext:         common,
		RequireClientCertificate: envoy.Bool(mutual || mode == networkingv1alpha3.ServerTLSSettings_MUTUAL),
	}
}

// serverCertificates names the certificates of a server: of its credentials, of its files, or else the proxy's own.
func serverCertificates(own node.Files, t *networkingv1alpha3.ServerTLSSettings) []*tlsv3.SdsSecretConfig {
	var list []*tlsv3.SdsSecretConfig
	switch {
	case t.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL:
		if own.Chain != "" {
			return []*tlsv3.SdsSecretConfig{envoy.FileCertificate(own.Chain, own.Key)}
		}
		return []*tlsv3.SdsSecretConfig{envoy.AgentSecret("default")}
	case len(t.GetCredentialNames()) > 0:
		for _, name := range t.GetCredentialNames() {
			list = append(list, envoy.Credential(name))
		}
	case t.GetCredentialName() != "":
		list = append(list, envoy.Credential(t.GetCredentialName()))
	case len(t.GetTlsCertificates()) > 0:
		for _, c := range t.GetTlsCertificates() {
			list = append(list, envoy.FileCertificate(c.GetServerCertificate(), c.GetPrivateKey()))
		}
	default:
		list = append(list, envoy.FileCertificate(t.GetServerCertificate(), t.GetPrivateKey()))
	}
	return list
}

// clientRoots names the CA certificates by which a server verifies the certificates of clients.
func clientRoots(own node.Files, t *networkingv1alpha3.ServerTLSSettings) *tlsv3.SdsSecretConfig {
	switch {
	case t.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL && own.Roots != "":
		return envoy.FileRoots(own.Roots)
	case t.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL:
		return envoy.AgentSecret("ROOTCA")
	case t.GetCaCertCredentialName() != "":
		return envoy.NamedCACredential(t.GetCaCertCredentialName())
	case len(t.GetCredentialNames()) > 0:
		return envoy.CACredential(t.GetCredentialNames()[0])
	case t.GetCredentialName() != "":
		return envoy.CACredential(t.GetCredentialName())
	}
	if t.GetCaCertificates() == "" {
		return envoy.AgentSecret("ROOTCA") // without a file, the root of the mesh
	}
	return envoy.FileRoots(t.GetCaCertificates())
}

// clientValidation returns the requirements for a client's certificate, in addition to its issuer.
func clientValidation(t *networkingv1alpha3.ServerTLSSettings) *tlsv3.CertificateValidationContext {
	c := &tlsv3.CertificateValidationContext{}
	for _, n := range t.GetSubjectAltNames() {
		// The untyped field is the one that istiod sends, and that every supported Envoy accepts.
		exact := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n}}
		c.MatchSubjectAltNames = append(c.MatchSubjectAltNames, exact) //nolint:staticcheck
	}
	c.VerifyCertificateSpki, c.VerifyCertificateHash = t.GetVerifyCertificateSpki(), t.GetVerifyCertificateHash()
	if t.GetInsecureSkipVerify().GetValue() && t.GetMode() != networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL {
		c.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
	}
	if t.GetCaCrl() != "" {
		c.Crl = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.GetCaCrl()}}
	}
	return c
}

// tlsParameters returns the protocol versions, cipher suites and curves of a server, or nil for Envoy's defaults. Unset
// fields have the mesh's values.
func tlsParameters(defaults *meshv1alpha1.MeshConfig_TLSConfig, t *networkingv1alpha3.ServerTLSSettings) *tlsv3.TlsParameters {
	if t.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL {
		return nil
	}
	p := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: cmp.Or(tlsVersion(t.GetMinProtocolVersion()), envoy.LeastVersion(defaults)),
		TlsMaximumProtocolVersion: tlsVersion(t.GetMaxProtocolVersion()),
	}
	if p.TlsMaximumProtocolVersion != 0 && p.TlsMinimumProtocolVersion > p.TlsMaximumProtocolVersion {
		p.TlsMinimumProtocolVersion = p.TlsMaximumProtocolVersion // the server sets only the maximum
	}
	ciphers, curves := t.GetCipherSuites(), t.GetEcdhCurves()
	if len(ciphers) == 0 {
		ciphers = defaults.GetCipherSuites()
	}
	if len(curves) == 0 {
		curves = defaults.GetEcdhCurves()
	}
	envoy.Restrict(p, ciphers, curves)
	if proto.Equal(p, &tlsv3.TlsParameters{}) && len(t.GetCipherSuites()) == 0 {
		return nil
	}
	return p
}

func tlsVersion(v networkingv1alpha3.ServerTLSSettings_TLSProtocol) tlsv3.TlsParameters_TlsProtocol {
	return tlsv3.TlsParameters_TlsProtocol(v) // both enums have the same numbers
}
