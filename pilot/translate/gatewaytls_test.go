package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// tlsGatewayWorld has a gateway with the servers that are put in, and routes for them.
const tlsGatewayWorld = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: a}
spec: {clusterIP: 10.64.0.2, selector: {app: db}, ports: [{name: tcp, port: 9000}, {name: tcp-more, port: 9001}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: a}
spec:
  hosts: [one.example.com, two.example.com, "*.three.example.com"]
  gateways: [istio-system/gw, mesh]
  http: [{route: [{destination: {host: web}}]}]
  tls:
  - {match: [{sniHosts: [two.example.com], gateways: [mesh]}], route: [{destination: {host: db, port: {number: 9001}}}]}
  - {match: [{port: 443, sniHosts: [Two.example.com, one.EXAMPLE.com, two.example.com]}], route: [{destination: {host: web}}]}
  - {match: [{port: 444, sniHosts: ["*.three.example.com"]}],
      route: [{destination: {host: web}, weight: 70}, {destination: {host: db, subset: v1, port: {number: 9001}}, weight: 30}]}
  tcp:
  - {match: [{port: 7001}], route: [{destination: {host: web}}]}
  - {route: [{destination: {host: db, port: {number: 9000}}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: istio-system}
spec:
  selector: {istio: ingress}
  servers:
`

// TestGatewayTLS has a server of every sort, and servers that share a port.
func TestGatewayTLS(t *testing.T) {
	for _, c := range []struct {
		name      string
		servers   []string
		want      []string // a line for each chain: listener, server names, what becomes of connections, TLS
		conflicts int
	}{
		{
			name: "terminated",
			servers: []string{`port: {number: 443, name: s, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, ` +
				`credentialName: one, minProtocolVersion: TLSV1_2, maxProtocolVersion: TLSV1_3, cipherSuites: [AES128-SHA, none]}`},
			want: []string{"0.0.0.0_443 one.example.com https.443.s.gw.istio-system kubernetes://one TLSv1_2..TLSv1_3 AES128-SHA"},
		},
		{
			name: "terminated with curves and protocols",
			servers: []string{
				`port: {number: 443, name: s, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one, ` +
					`ecdhCurves: [P-384, none, X25519, P-384], alpnProtocols: [http/1.1]}`,
				`port: {number: 444, name: t, protocol: TLS}, hosts: ["*"], tls: {mode: ISTIO_MUTUAL, ecdhCurves: [P-384], alpnProtocols: [mine]}`,
			},
			want: []string{
				"0.0.0.0_443 one.example.com https.443.s.gw.istio-system kubernetes://one TLS_AUTO..TLS_AUTO P-384 X25519 http/1.1",
				"0.0.0.0_444 * outbound|9000||db.a.svc.cluster.local default required ROOTCA mine",
			},
		},
		{
			name: "restrictions that proxies cannot enforce", // none of the servers takes connections, and another one takes over no host
			servers: []string{
				`port: {number: 443, name: s, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one, cipherSuites: [" ` +
					`AES128-SHA", "!aNULL"]}`,
				`port: {number: 443, name: again, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one}`,
				`port: {number: 444, name: u, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one, subjectAltNames: ` +
					`[client]}`,
				`port: {number: 445, name: t, protocol: TLS}, hosts: ["*"], tls: {mode: OPTIONAL_MUTUAL, credentialName: one, cipherSuites: [none]}`,
				`port: {number: 447, name: c, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: one, ecdhCurves: [none]}`,
				`port: {number: 446, name: m, protocol: HTTPS}, hosts: ["*"], tls: {mode: ISTIO_MUTUAL, subjectAltNames: [client]}`,
			},
			want: []string{"0.0.0.0_446 * https.446.m.gw.istio-system default required ROOTCA sans client"},
		},
		{
			name: "by files without a CA",
			servers: []string{
				`port: {number: 443, name: f, protocol: HTTPS}, hosts: ["*"], tls: {mode: MUTUAL, serverCertificate: /c, privateKey: /k}`,
				`port: {number: 444, name: g, protocol: HTTPS}, hosts: ["*"], tls: {mode: OPTIONAL_MUTUAL, tlsCertificates: [{serverCertificate: ` +
					`/c, privateKey: /k}]}`,
			},
			want: []string{
				"0.0.0.0_443 * https.443.f.gw.istio-system file-cert:/c~/k required ROOTCA",
				"0.0.0.0_444 * https.444.g.gw.istio-system file-cert:/c~/k optional ROOTCA",
			},
		},
		{
			name: "with client certificates",
			servers: []string{`port: {number: 443, name: m, protocol: HTTPS}, hosts: [a/one.example.com], tls: {mode: MUTUAL, ` +
				`credentialNames: [rsa, ecdsa], subjectAltNames: [c], verifyCertificateSpki: [AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=], ` +
				`verifyCertificateHash: ["0000000000000000000000000000000000000000000000000000000000000000"]}`},
			want: []string{"0.0.0.0_443 one.example.com https.443.m.gw.istio-system kubernetes://rsa kubernetes://ecdsa required " +
				"kubernetes://rsa-cacert sans c spki AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= hash " +
				"0000000000000000000000000000000000000000000000000000000000000000"},
		},
		{
			name: "with client certificates of other CAs",
			servers: []string{`port: {number: 443, name: o, protocol: HTTPS}, hosts: ["*"], ` +
				`tls: {mode: OPTIONAL_MUTUAL, credentialName: one, caCertCredentialName: clients, insecureSkipVerify: true}`},
			want: []string{"0.0.0.0_443 * https.443.o.gw.istio-system kubernetes://one optional kubernetes://clients#ca untrusted"},
		},
		{
			name: "by files",
			servers: []string{`port: {number: 443, name: f, protocol: HTTPS}, hosts: ["*"], ` +
				`tls: {mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /r, caCrl: /l}`},
			want: []string{"0.0.0.0_443 * https.443.f.gw.istio-system file-cert:/c~/k required file-root:/r crl /l"},
		},
		{
			name: "by several files",
			servers: []string{`port: {number: 443, name: f, protocol: HTTPS}, hosts: ["*"], ` +
				`tls: {mode: SIMPLE, tlsCertificates: [{serverCertificate: /c, privateKey: /k}, {serverCertificate: /d, privateKey: /l}]}`},
			want: []string{"0.0.0.0_443 * https.443.f.gw.istio-system file-cert:/c~/k file-cert:/d~/l"},
		},
		{
			name: "of the mesh",
			servers: []string{
				`port: {number: 443, name: i, protocol: HTTPS}, hosts: ["*"], tls: {mode: ISTIO_MUTUAL}`,
				`port: {number: 9443, name: j, protocol: TLS}, hosts: ["*"], tls: {mode: ISTIO_MUTUAL}`,
			},
			want: []string{
				"0.0.0.0_443 * https.443.i.gw.istio-system default required ROOTCA",
				"0.0.0.0_9443 * outbound|9000||db.a.svc.cluster.local default required ROOTCA istio-peer-exchange",
			},
		},
		{
			name: "connections",
			servers: []string{
				`port: {number: 7000, name: a, protocol: TCP}, hosts: ["*"]`,
				`port: {number: 7001, name: b, protocol: TCP}, hosts: [one.example.com]`,
				`port: {number: 7002, name: c, protocol: TLS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one}`,
				`port: {number: 7003, name: d, protocol: TCP}, hosts: [nobody.example.com]`,
				`port: {number: 7004, name: e, protocol: UDP}, hosts: ["*"]`,
			},
			want: []string{
				"0.0.0.0_7000 * outbound|9000||db.a.svc.cluster.local", "0.0.0.0_7001 * outbound|80||web.a.svc.cluster.local",
				"0.0.0.0_7002 one.example.com outbound|9000||db.a.svc.cluster.local kubernetes://one",
			},
		},
		{
			name: "passed through",
			servers: []string{
				`port: {number: 443, name: p, protocol: TLS}, hosts: [one.example.com, two.example.com], tls: {mode: PASSTHROUGH}`,
				`port: {number: 444, name: q, protocol: HTTPS}, hosts: ["*.example.com"], tls: {mode: PASSTHROUGH}`,
			},
			want: []string{
				"0.0.0.0_443 one.example.com,two.example.com outbound|80||web.a.svc.cluster.local",
				"0.0.0.0_444 *.three.example.com outbound|80||web.a.svc.cluster.local=70,outbound|9001|v1|db.a.svc.cluster.local=30 all.a",
			},
		},
		{
			name: "hosts that share a port",
			servers: []string{
				`port: {number: 443, name: one, protocol: HTTPS}, ` +
					`hosts: [a/one.example.com, b/two.example.com], tls: {mode: SIMPLE, credentialName: one}`,
				`port: {number: 443, name: two, protocol: HTTPS}, hosts: [b/one.example.com, ` +
					`"*.four.example.com", "*-five.example.com"], tls: {mode: SIMPLE, credentialName: two}`,
				`port: {number: 443, name: p, protocol: TLS}, hosts: ["*.example.com"], tls: {mode: PASSTHROUGH}`,
				`port: {number: 443, name: any, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: any}`,
				`port: {number: 443, name: plain, protocol: HTTP}, hosts: ["*"]`,
			},
			want: []string{
				"0.0.0.0_443 one.example.com,two.example.com https.443.one.gw.istio-system kubernetes://one",
				"0.0.0.0_443 *.four.example.com https.443.two.gw.istio-system kubernetes://two",
				"0.0.0.0_443 * https.443.any.gw.istio-system kubernetes://any",
			},
			conflicts: 1, // a port counts once
		},
		{
			name: "plaintext that comes first",
			servers: []string{
				`port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]`,
				`port: {number: 80, name: tls, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one}`,
				`port: {number: 7000, name: tcp, protocol: TCP}, hosts: ["*"]`,
				`port: {number: 7000, name: http2, protocol: HTTP}, hosts: ["*"]`,
			},
			want:      []string{"0.0.0.0_7000 * outbound|9000||db.a.svc.cluster.local", "0.0.0.0_80 * http.80"},
			conflicts: 2,
		},
		{
			name: "certificates of elsewhere",
			servers: []string{`port: {number: 443, name: e, protocol: HTTPS}, hosts: ["*"], ` +
				`tls: {mode: MUTUAL, credentialNames: ["kubernetes-gateway://a/one", "builtin://"], caCertCredentialName: "configmap://a/roots"}`},
			want: []string{"0.0.0.0_443 * https.443.e.gw.istio-system kubernetes-gateway://a/one default required configmap://a/roots-cacert"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, tr := newWorld(t, mesh.Default()), newTranslator(0)
			text := tlsGatewayWorld
			for _, s := range c.servers {
				text += "  - {" + s + "}\n"
			}
			gw := &node.Proxy{
				Type: node.Router, ID: "gw.istio-system", Name: "gw", Namespace: "istio-system", Domain: "istio-system.svc.cluster.local",
				IPs: []string{"10.1.0.9"}, Cluster: "Kubernetes",
				Labels: map[string]string{"istio": "ingress"}, MeshID: "cluster.local", Capabilities: everything,
			}
			sent := sent(t, tr, w.apply(objects(t, "world.yaml", []byte(text))...), gw)
			var got []string
			for name, r := range sent["lds"] {
				l := decode(t, r).(*listenerv3.Listener)
				for _, chain := range l.FilterChains {
					got = append(got, name+" "+describe(t, chain))
				}
			}
			slices.SortStableFunc(got, func(a, b string) int {
				return strings.Compare(a[:strings.IndexByte(a, ' ')], b[:strings.IndexByte(b, ' ')])
			})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if n := tr.Count(view.ConflictOutbound); n != c.conflicts {
				t.Errorf("%d conflicts, want %d", n, c.conflicts)
			}
		})
	}
}

// describe returns a filter chain in one line.
func describe(t *testing.T, chain *listenerv3.FilterChain) string {
	t.Helper()
	words := []string{strings.Join(chain.GetFilterChainMatch().GetServerNames(), ",")}
	if words[0] == "" {
		words[0] = "*"
	}
	last := chain.Filters[len(chain.Filters)-1]
	if m := (&hcmv3.HttpConnectionManager{}); last.GetTypedConfig().MessageIs(m) {
		unpack(t, last.GetTypedConfig().Value, m)
		words = append(words, m.GetRds().GetRouteConfigName())
	} else {
		p := &tcpv3.TcpProxy{}
		unpack(t, last.GetTypedConfig().Value, p)
		if to := p.GetCluster(); to != "" {
			words = append(words, to)
		} else {
			var list []string
			for _, w := range p.GetWeightedClusters().GetClusters() {
				list = append(list, fmt.Sprintf("%s=%d", w.Name, w.Weight))
			}
			words = append(words, strings.Join(list, ","), p.StatPrefix)
		}
	}
	if chain.TransportSocket == nil {
		return strings.Join(words, " ")
	}
	d := &tlsv3.DownstreamTlsContext{}
	if q := (&quicv3.QuicDownstreamTransport{}); chain.TransportSocket.GetTypedConfig().MessageIs(q) {
		unpack(t, chain.TransportSocket.GetTypedConfig().Value, q)
		d = q.DownstreamTlsContext
	} else {
		unpack(t, chain.TransportSocket.GetTypedConfig().Value, d)
	}
	common := d.CommonTlsContext
	for _, s := range common.TlsCertificateSdsSecretConfigs {
		words = append(words, s.Name)
	}
	if v := common.GetCombinedValidationContext(); v != nil {
		words = append(words, map[bool]string{true: "required", false: "optional"}[d.RequireClientCertificate.GetValue()],
			v.ValidationContextSdsSecretConfig.Name)
		if c := v.DefaultValidationContext; c != nil {
			for _, m := range c.GetMatchSubjectAltNames() { //nolint:staticcheck // what is sent
				words = append(words, "sans", m.GetExact())
			}
			for _, s := range c.VerifyCertificateSpki {
				words = append(words, "spki", s)
			}
			for _, s := range c.VerifyCertificateHash {
				words = append(words, "hash", s)
			}
			if c.Crl != nil {
				words = append(words, "crl", c.Crl.GetFilename())
			}
			if c.TrustChainVerification == tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED {
				words = append(words, "untrusted")
			}
		}
	}
	if p := common.TlsParams; p != nil {
		words = append(words, p.TlsMinimumProtocolVersion.String()+".."+p.TlsMaximumProtocolVersion.String())
		words = append(words, slices.Concat(p.CipherSuites, p.EcdhCurves)...)
	}
	if common.AlpnProtocols[0] != "h2" {
		words = append(words, common.AlpnProtocols[0])
	}
	return strings.Join(words, " ")
}

func unpack(t *testing.T, b []byte, m proto.Message) {
	t.Helper()
	must.Succeed(t, proto.Unmarshal(b, m))
}
