package trace

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// downstreamTLS returns how a chain terminates TLS, or nil if it does not.
func downstreamTLS(chain *listenerv3.FilterChain) *tlsv3.DownstreamTlsContext {
	t, q := &tlsv3.DownstreamTlsContext{}, &quicv3.QuicDownstreamTransport{}
	switch s := chain.GetTransportSocket().GetTypedConfig(); {
	case s.MessageIs(q) && s.UnmarshalTo(q) == nil:
		return q.GetDownstreamTlsContext()
	case s.MessageIs(t) && s.UnmarshalTo(t) == nil:
		return t
	}
	return nil
}

// handshake reports whether a connection passes the TLS handshake of a chain.
func handshake(a *Answer, c Config, chain *listenerv3.FilterChain, t *tlsv3.DownstreamTlsContext, r Request) bool {
	switch {
	case t == nil && r.TLS && !r.HTTP3 && isHTTP(chain):
		a.end(accesslog.Client, 0, "the chain expects HTTP in plaintext, and the connection is TLS")
		return false
	case t == nil:
		return true
	case !r.TLS:
		a.end(accesslog.TLS, 0, "the chain terminates TLS, and the connection is plaintext")
		return false
	}
	missing := c.lacks(t.GetCommonTlsContext())
	if len(missing) > 0 {
		for _, name := range missing {
			a.step(Step{What: stepSecret, Name: name, Reason: "the proxy was not sent it"})
		}
		a.end(accesslog.TLS, 0, "the TLS handshake fails: %s", lacking(missing))
		return false
	}
	c.doubt(a, t.GetCommonTlsContext())
	if t.GetRequireClientCertificate().GetValue() {
		switch ofMesh := trustsMesh(t.GetCommonTlsContext()); {
		case r.Identity == "" && !r.Certificate && ofMesh:
			a.end(accesslog.TLS, 0, "the chain requires a certificate of the mesh, and the client has none")
			return false
		case r.Identity == "" && !r.Certificate:
			a.end(accesslog.TLS, 0, "the chain requires a certificate of the client, and the client has none")
			return false
		case !namedIn(t, r.Identity):
			names := namesOf(t.GetCommonTlsContext())
			wanted := strings.Join(lists.Map(names, Name.String), " or ")
			if r.Identity != "" {
				a.end(accesslog.TLS, 0, "the chain requires a certificate with %s, and the client has %s", wanted, r.Identity)
				return false
			}
			a.depends("chain %s takes the client's certificate only if it has %s", chainName(chain), wanted)
		case r.Identity == "" && ofMesh:
			a.depends("chain %s takes the client's certificate only if it is one of the mesh", chainName(chain))
		case r.Identity != "" && !ofMesh:
			a.depends("chain %s takes the certificate of the mesh only if it trusts the root of the mesh", chainName(chain))
		}
	}
	if files := filesOf(t.GetCommonTlsContext()); len(files) > 0 {
		a.depends("TLS needs the files %s in the container of the proxy", strings.Join(files, " and "))
	}
	return true
}

// namedIn reports whether a chain takes clients of any name, or of this identity.
func namedIn(t *tlsv3.DownstreamTlsContext, identity string) bool {
	names := namesOf(t.GetCommonTlsContext())
	return len(names) == 0 || slices.ContainsFunc(names, func(n Name) bool { return identity != "" && n.Matches(identity) })
}

// asksForCertificate reports whether clients are asked for a certificate, which they need not have.
func asksForCertificate(t *tlsv3.DownstreamTlsContext) bool {
	return t.GetCommonTlsContext().GetValidationContextType() != nil
}

// trustsMesh reports whether certificates are verified by the roots of the mesh, which the agent beside the proxy or
// the application serves.
func trustsMesh(t *tlsv3.CommonTlsContext) bool {
	const roots = "ROOTCA"
	combined := t.GetCombinedValidationContext()
	return slices.Contains([]string{
		t.GetValidationContextSdsSecretConfig().GetName(), combined.GetValidationContextSdsSecretConfig().GetName(),
		combined.GetDefaultValidationContext().GetCaCertificateProviderInstance().GetCertificateName(), // as gRPC names them
		t.GetValidationContext().GetCaCertificateProviderInstance().GetCertificateName(),
	}, roots)
}

// transport says which TLS a chain terminates.
func transport(t *tlsv3.DownstreamTlsContext, r Request) []string {
	switch {
	case t == nil && r.TLS:
		return []string{"TLS is passed through"}
	case t == nil:
		return nil
	case r.HTTP3:
		return []string{"it takes HTTP/3"}
	case t.GetRequireClientCertificate().GetValue():
		return []string{"it terminates TLS and asks for a certificate: mutual TLS"}
	}
	return []string{"it terminates TLS"}
}

// The kinds of TLS with which proxies call endpoints.
const (
	TLS       = "TLS"
	MutualTLS = "mutual TLS"
	MeshTLS   = "mutual TLS of the mesh" // with the certificates of the mesh
)

// upstreamTLS returns the TLS settings of a transport socket for endpoints, or nil for plaintext, and whether it sends
// a header of the PROXY protocol before anything else.
func upstreamTLS(s *corev3.TransportSocket) (t *tlsv3.UpstreamTlsContext, proxy bool) {
	p := &proxyprotocolv3.ProxyProtocolUpstreamTransport{}
	if proxy = s.GetTypedConfig().MessageIs(p) && s.GetTypedConfig().UnmarshalTo(p) == nil; proxy {
		s = p.GetTransportSocket()
	}
	if config, err := unpack(s.GetTypedConfig()); err == nil {
		t, _ = config.(*tlsv3.UpstreamTlsContext)
	}
	return t, proxy
}

// kindOf returns the kind of TLS of settings, or "" for plaintext.
func kindOf(t *tlsv3.UpstreamTlsContext) string {
	if t == nil {
		return ""
	}
	common := t.GetCommonTlsContext()
	own := common.GetTlsCertificateProviderInstance() // as gRPC names its certificates
	names := []string{own.GetCertificateName()}
	for _, s := range common.GetTlsCertificateSdsSecretConfigs() {
		names = append(names, s.GetName())
	}
	switch {
	case slices.Contains(names, "default"):
		return MeshTLS
	case len(names)-1+len(common.GetTlsCertificates()) > 0 || own != nil:
		return MutualTLS
	}
	return TLS
}

// Name matches a name in a certificate.
type Name struct{ m *matcherv3.StringMatcher }

// Matches reports whether the name is the one that is meant.
func (n Name) Matches(name string) bool { return matchString(n.m, name) }

func (n Name) String() string { return stringText(n.m) }

// namesOf returns the names of which a certificate must have one.
func namesOf(t *tlsv3.CommonTlsContext) (names []Name) {
	own, combined := t.GetValidationContext(), t.GetCombinedValidationContext()
	if combined != nil {
		own = combined.GetDefaultValidationContext()
	}
	for _, m := range own.GetMatchTypedSubjectAltNames() {
		names = append(names, Name{m.GetMatcher()})
	}
	for _, m := range own.GetMatchSubjectAltNames() { //nolint:staticcheck // the field that is sent
		names = append(names, Name{m})
	}
	return names
}

// filesOf returns the files in the container of the proxy that TLS needs.
func filesOf(t *tlsv3.CommonTlsContext) (files []string) {
	for _, s := range append(slices.Clone(t.GetTlsCertificateSdsSecretConfigs()), rootsOf(t)...) {
		if cert, isFile := strings.CutPrefix(s.GetName(), "file-cert:"); isFile {
			files = append(files, strings.Split(cert, "~")...)
		}
		if root, isFile := strings.CutPrefix(s.GetName(), "file-root:"); isFile && root != "system" {
			files = append(files, root)
		}
	}
	return files
}

// secure sets the TLS with which a cluster calls an endpoint, and the secrets for it that the proxy lacks.
func (x *Endpoint) secure(c Config, cluster *clusterv3.Cluster, e *endpointv3.LbEndpoint, o offer) {
	socket := cluster.GetTransportSocket()
	labels := e.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"].GetFields()
	for _, m := range cluster.GetTransportSocketMatches() {
		matches := true
		for k, v := range m.GetMatch().GetFields() {
			matches = matches && labels[k] != nil && proto.Equal(labels[k], v)
		}
		if matches {
			socket = m.GetTransportSocket()
			break
		}
	}
	t, proxy := upstreamTLS(socket)
	x.TLS, x.SNI, x.ALPN, x.PROXY = kindOf(t), t.GetSni(), o.of(t.GetCommonTlsContext().GetAlpnProtocols()), proxy
	x.Lacks = c.lacks(t.GetCommonTlsContext())
	x.Names, x.Files = namesOf(t.GetCommonTlsContext()), filesOf(t.GetCommonTlsContext())
}
