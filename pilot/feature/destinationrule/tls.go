package destinationrule

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TLS implements feature.Destination.
func (policies) TLS(t *networkingv1alpha3.ClientTLSSettings, o feature.PolicyTLS, c *clusterv3.Cluster,
	options *httpv3.HttpProtocolOptions) {
	switch t.Mode {
	case networkingv1alpha3.ClientTLSSettings_DISABLE:
		return
	case networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL:
		if callsAnyHost(c) {
			nameByRequest(t, c, options)
		}
		c.TransportSocket = o.Mutual
		return
	}
	common := &tlsv3.CommonTlsContext{TlsParams: &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
	}}
	envoy.Restrict(common.TlsParams, o.Mesh.GetTlsDefaults().GetCipherSuites(), o.Mesh.GetTlsDefaults().GetEcdhCurves())
	o.Mesh.Compliance.Restrict(common)
	if o.HTTP2 {
		common.AlpnProtocols = []string{"h2"}
	}
	var sans []*matcherv3.StringMatcher
	verified := t.SubjectAltNames
	if len(verified) == 0 {
		verified = o.Identities
	}
	for _, n := range verified {
		sans = append(sans, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n}})
	}
	certificate, root := envoy.FileCertificate(t.ClientCertificate, t.PrivateKey), envoy.FileRoots(cmp.Or(t.CaCertificates, "system"))
	if t.CredentialName != "" && o.Credentials || t.CredentialName == names.NoCredential {
		certificate, root = envoy.Credential(t.CredentialName), envoy.CACredential(t.CredentialName)
	}
	if t.CaCertCredentialName != "" && o.Credentials && t.CredentialName != names.NoCredential {
		root = envoy.NamedCACredential(t.CaCertCredentialName)
	}
	if t.Mode == networkingv1alpha3.ClientTLSSettings_MUTUAL {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{certificate}
	} else if o.Certificate != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{envoy.Credential(o.Certificate)}
	}
	if t.GetInsecureSkipVerify().GetValue() {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{}}
	} else {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				// The untyped field is the one that istiod sends, and that every supported Envoy accepts.
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchSubjectAltNames: sans, Crl: crl(t)}, //nolint:staticcheck
				ValidationContextSdsSecretConfig: root,
			},
		}
	}
	nameByRequest(t, c, options)
	c.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: envoy.Any(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: t.Sni}),
	}}
	istio := c.Metadata.GetFilterMetadata()["istio"]
	if istio != nil && !o.InMesh {
		istio.Fields["alpn_override"] = envoy.Text("false") // the protocols of the mesh are unknown outside of it
	}
}

// nameByRequest makes Envoy request and verify the host of each request. The host is the server name if the settings
// have none. The certificate must be for the host if the settings name neither a server nor alternative names. In a
// cluster that calls any host it always must be, because such names apply to all of its hosts.
func nameByRequest(t *networkingv1alpha3.ClientTLSSettings, c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions) {
	asks := t.Sni == ""
	verifies := !t.GetInsecureSkipVerify().GetValue() && (callsAnyHost(c) || asks && len(t.SubjectAltNames) == 0)
	if !asks && !verifies {
		return
	}
	if options.UpstreamProtocolOptions == nil {
		options.UpstreamProtocolOptions = envoy.ExplicitHTTP1()
	}
	options.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: asks, AutoSanValidation: verifies}
}

// callsAnyHost reports whether the proxy resolves the host of each request of a cluster.
func callsAnyHost(c *clusterv3.Cluster) bool { return c.GetClusterType() != nil }

// crl is the list of revoked certificates, a file of the proxy's own. An Envoy that cannot read it rejects the cluster.
func crl(t *networkingv1alpha3.ClientTLSSettings) *corev3.DataSource {
	if t.CaCrl == "" {
		return nil
	}
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.CaCrl}}
}
