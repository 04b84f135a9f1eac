package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

const upstreamWorld = `{apiVersion: v1, kind: Pod, metadata: {name: gw, namespace: a, labels: {istio: ingress}},
  spec: {containers: [{name: x, image: x}]}, status: {podIP: 10.0.0.2}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ext, namespace: a}
spec:
  hosts: [ext.example.com]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: 443, name: tls, protocol: TLS}, {number: 444, name: https, protocol: HTTPS}]
  subjectAltNames: [one, two]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80}, {name: more, port: 81}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: a, labels: {app: web}},
  spec: {containers: [{name: x, image: x}]}, status: {podIP: 10.0.0.3, conditions: [{type: Ready, status: "True"}]}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: rule, namespace: a}
spec: {host: HOST, trafficPolicy: {POLICY}, subsets: [{name: v1, labels: {v: "1"}},
  {name: v2, labels: {v: "2"}, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}]}
`

// TestUpstreamTLS: the connections of a cluster are secured as the DestinationRule says, and what the rule leaves open
// is as the ServiceEntry and the mesh have it.
func TestUpstreamTLS(t *testing.T) {
	const ext, web = "ext.example.com", "web.a.svc.cluster.local"
	for _, c := range []struct{ host, policy, cluster, want string }{
		{ext, "tls: {mode: SIMPLE, caCertificates: /c}", "outbound|443||" + ext, "file-root:/c sans one,two"},
		{ext, "tls: {mode: SIMPLE, caCertificates: /c, sni: x.com}", "outbound|443||" + ext, "file-root:/c sni x.com sans one,two"},
		{ext, "tls: {mode: MUTUAL, caCertificates: /c, clientCertificate: /d, privateKey: /k, sni: x.com}", "outbound|444||" + ext,
			"file-root:/c sni x.com sans one,two"},
		{ext, "tls: {mode: SIMPLE, caCertificates: /c, subjectAltNames: [own]}", "outbound|443||" + ext, "file-root:/c sans own"},
		{ext, "portLevelSettings: [{port: {number: 443}, tls: {mode: SIMPLE, sni: x.com}}, {port: {number: 443}, tls: {mode: DISABLE}}]",
			"outbound|443||" + ext, "file-root:system sni x.com sans one,two"},
		{ext, "portLevelSettings: [{port: {number: 443}, tls: {mode: DISABLE}}, {port: {number: 443}, tls: {mode: SIMPLE}}]",
			"outbound|443||" + ext, "plaintext"},
		{web, "tls: {mode: SIMPLE, sni: x.com}", "outbound|80||" + web, "file-root:system sni x.com"},
		{web, "loadBalancer: {simple: PASSTHROUGH}", "outbound|80||" + web, "plaintext"}, // its endpoints take no mutual TLS
		{web, "portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: PASSTHROUGH}}]", "outbound|80||" + web,
			"ROOTCA sni outbound_.80_._." + web + " sans spiffe://cluster.local/ns/a/sa/default"},
		{web, "portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: PASSTHROUGH}}]", "outbound|80|v1|" + web,
			"ROOTCA sni outbound_.80_.v1_." + web + " sans spiffe://cluster.local/ns/a/sa/default"},
		{web, "connectionPool: {tcp: {maxConnections: 1}}", "outbound|81|v2|" + web,
			"ROOTCA sni outbound_.81_.v2_." + web + " sans spiffe://cluster.local/ns/a/sa/default"},
	} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		s := w.apply(objects(t, "world.yaml", []byte(strings.NewReplacer("HOST", c.host, "POLICY", c.policy).Replace(upstreamWorld)))...)
		for _, id := range []string{"sidecar~10.0.0.9~web-0.a~a.svc.cluster.local", "router~10.0.0.2~gw.a~a.svc.cluster.local"} {
			p := proxy(t, []byte(fmt.Sprintf(`{"id": %q}`, id)))
			got := "none"
			for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ClusterType).All {
				if r.Name == c.cluster {
					got = upstreamOf(t, decode(t, r).(*clusterv3.Cluster))
				}
			}
			if got != c.want {
				t.Errorf("%s: {%s}: %s of %s is %s, want %s", c.host, c.policy, c.cluster, id, got, c.want)
			}
		}
	}
}

// fileNode is a sidecar with certificates from files of its own, for both directions.
const fileNode = `{"id": "sidecar~10.0.0.3~web.a~a.svc.cluster.local", "metadata": {
	"TLS_CLIENT_CERT_CHAIN": "/client/cert.pem", "TLS_CLIENT_KEY": "/client/key.pem", "TLS_CLIENT_ROOT_CERT": "/client/roots.pem",
	"TLS_SERVER_CERT_CHAIN": "/server/cert.pem", "TLS_SERVER_KEY": "/server/key.pem", "TLS_SERVER_ROOT_CERT": "/server/roots.pem"}}`

// TestClientFiles checks that a proxy with a certificate and roots of its own in files uses them for mutual TLS within
// the mesh, whatever a DestinationRule says of certificates, and for nothing else.
func TestClientFiles(t *testing.T) {
	const own, mesh1 = "file-cert:/client/cert.pem~/client/key.pem file-root:/client/roots.pem", "default ROOTCA"
	const sni, id = " sni outbound_.80_._.web.a.svc.cluster.local", " sans spiffe://cluster.local/ns/a/sa/default"
	const incomplete = `{"id": "sidecar~10.0.0.3~web.a~a.svc.cluster.local", ` +
		`"metadata": {"TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_ROOT_CERT": "/r"}}`
	for _, c := range []struct{ node, host, policy, want string }{
		{fileNode, "web", "connectionPool: {tcp: {maxConnections: 1}}", own + sni + id},
		{fileNode, "web", "tls: {mode: ISTIO_MUTUAL}", own},
		{fileNode, "web", "tls: {mode: ISTIO_MUTUAL, sni: x.com, subjectAltNames: [b, a]}", own + " sni x.com sans b,a"},
		{fileNode, "web", "tls: {mode: MUTUAL, clientCertificate: /d, privateKey: /k, sni: x.com}", own + " sni x.com override"},
		{fileNode, "web", "tls: {mode: SIMPLE, sni: x.com}", "file-root:system sni x.com override"},
		{fileNode, "web", "tls: {mode: DISABLE}", "plaintext"},
		{fileNode, "ext.example.com", "tls: {mode: MUTUAL, clientCertificate: /d, privateKey: /k, sni: x.com}",
			"file-cert:/d~/k file-root:system sni x.com sans one,two override"},
		{fileNode, "ext.example.com", "tls: {mode: ISTIO_MUTUAL, sni: x.com}", mesh1 + " sni x.com sans one,two"},
		{incomplete, "web", "tls: {mode: ISTIO_MUTUAL}", mesh1 + sni + id},
	} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		s := w.apply(objects(t, "world.yaml", []byte(strings.NewReplacer("HOST", c.host, "POLICY", c.policy).Replace(upstreamWorld)))...)
		p := proxy(t, []byte(c.node))
		got := "none"
		for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ClusterType).All {
			if r.Name != "outbound|80||web.a.svc.cluster.local" && r.Name != "outbound|443||ext.example.com" ||
				!strings.Contains(r.Name, "|"+c.host) {
				continue
			}
			cluster := decode(t, r).(*clusterv3.Cluster)
			if m := cluster.TransportSocketMatches; m != nil {
				cluster.TransportSocket = m[0].TransportSocket
			}
			got = upstreamOf(t, cluster)
			if cluster.TransportSocket != nil {
				u := new(tlsv3.UpstreamTlsContext)
				unpack(t, cluster.TransportSocket.GetTypedConfig().Value, u)
				for _, s := range u.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
					got = s.Name + " " + got
				}
			}
			if cluster.GetMetadata().GetFilterMetadata()["istio"].GetFields()["alpn_override"] != nil {
				got += " override"
			}
		}
		if got != c.want {
			t.Errorf("%s: {%s}: %s, want %s", c.host, c.policy, got, c.want)
		}
	}
}

// TestServerFiles checks that a proxy with a certificate and roots of its own in files has them in each chain that
// takes mutual TLS of the mesh, and still verifies the trust domain of clients.
func TestServerFiles(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{fileNode, "file-cert:/server/cert.pem~/server/key.pem file-root:/server/roots.pem"},
		{`{"id": "sidecar~10.0.0.3~web.a~a.svc.cluster.local", "metadata": {"TLS_SERVER_CERT_CHAIN": "/c", "TLS_SERVER_ROOT_CERT": "/r"}}`,
			"default file-root:/r"},
		{`{"id": "sidecar~10.0.0.3~web.a~a.svc.cluster.local"}`, "default ROOTCA"},
	} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		s := w.apply(objects(t, "world.yaml", []byte(strings.NewReplacer("HOST", "web", "POLICY", "").Replace(upstreamWorld)))...)
		found := 0
		for r := range tr.Wildcard(s, tr.ResolveCohort(s, proxy(t, []byte(c.node))), envoy.ListenerType).All {
			for _, chain := range decode(t, r).(*listenerv3.Listener).FilterChains {
				if chain.TransportSocket == nil {
					continue
				}
				found++
				d := new(tlsv3.DownstreamTlsContext)
				unpack(t, chain.TransportSocket.GetTypedConfig().Value, d)
				v := d.CommonTlsContext.GetCombinedValidationContext()
				got := d.CommonTlsContext.TlsCertificateSdsSecretConfigs[0].Name + " " + v.ValidationContextSdsSecretConfig.Name
				if got != c.want || !d.RequireClientCertificate.GetValue() ||
					v.DefaultValidationContext.MatchSubjectAltNames[0].GetPrefix() != "spiffe://cluster.local/" { //nolint:staticcheck // as it is sent
					t.Errorf("%s: %s, want %s", chain.Name, got, c.want)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s: no chain takes mutual TLS", c.want)
		}
	}
}

// TestVerifiedNamesAreTakenAsTheyAre checks that the names of a DestinationRule are verified as the rule has them, and
// not also in the aliases of the mesh's trust domain, while the names of a ServiceEntry are, as those of endpoints are.
func TestVerifiedNamesAreTakenAsTheyAre(t *testing.T) {
	m := mesh.Default()
	m.TrustDomain, m.TrustDomainAliases = "cluster.local", []string{"old"}
	const id = "spiffe://cluster.local/ns/a/sa/x"
	for _, c := range []struct{ host, policy, cluster, want string }{
		{"web", "tls: {mode: ISTIO_MUTUAL, subjectAltNames: ['" + id + "']}", "outbound|80||web.a.svc.cluster.local", id},
		{"ext.example.com", "tls: {mode: SIMPLE, subjectAltNames: ['" + id + "']}", "outbound|443||ext.example.com", id},
		{"ext.example.com", "tls: {mode: SIMPLE}", "outbound|443||ext.example.com", id + ",spiffe://old/ns/a/sa/x"},
		{"ext.example.com", "tls: {mode: ISTIO_MUTUAL}", "outbound|443||ext.example.com", id + ",spiffe://old/ns/a/sa/x"},
	} {
		w, tr := newWorld(t, m), newTranslator(0)
		text := strings.NewReplacer("HOST", c.host, "POLICY", c.policy, "[one, two]", "['"+id+"']").Replace(upstreamWorld)
		s := w.apply(objects(t, "world.yaml", []byte(text))...)
		p := proxy(t, []byte(`{"id": "sidecar~10.0.0.9~web-0.a~a.svc.cluster.local"}`))
		found := false
		for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ClusterType).All {
			if r.Name == c.cluster {
				found = true
				if got := upstreamOf(t, decode(t, r).(*clusterv3.Cluster)); !strings.HasSuffix(got, " sans "+c.want) {
					t.Errorf("%s: {%s}: %s, want the names %s", c.host, c.policy, got, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%s: {%s}: there is no cluster", c.host, c.policy)
		}
	}
}

// upstreamOf returns what secures the connections of a cluster, in one line.
func upstreamOf(t *testing.T, c *clusterv3.Cluster) string {
	t.Helper()
	if c.TransportSocket == nil {
		return "plaintext"
	}
	u := new(tlsv3.UpstreamTlsContext)
	unpack(t, c.TransportSocket.GetTypedConfig().Value, u)
	v := u.GetCommonTlsContext().GetCombinedValidationContext()
	words := []string{v.GetValidationContextSdsSecretConfig().GetName()}
	if u.Sni != "" {
		words = append(words, "sni", u.Sni)
	}
	var sans []string
	for _, m := range v.GetDefaultValidationContext().GetMatchSubjectAltNames() { //nolint:staticcheck // as it is sent
		sans = append(sans, m.GetExact())
	}
	if len(sans) > 0 {
		words = append(words, "sans", strings.Join(sans, ","))
	}
	return strings.Join(words, " ")
}

// TestRulesStayAsTheyAre: a DestinationRule is shared by all clusters, which are made at the same time. Its names are
// sorted for the mesh's own TLS in a copy.
func TestRulesStayAsTheyAre(t *testing.T) {
	w := newWorld(t, mesh.Default())
	list := objects(t, "world.yaml", []byte(strings.NewReplacer("HOST", "web", "POLICY",
		"tls: {mode: ISTIO_MUTUAL, subjectAltNames: [c, a, b, a]}").Replace(upstreamWorld)))
	s := w.apply(list...)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			tr := newTranslator(0)
			p := proxy(t, []byte(`{"id": "sidecar~10.0.0.9~web-0.a~a.svc.cluster.local"}`))
			found := 0
			for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ClusterType).All {
				if strings.HasSuffix(r.Name, "|web.a.svc.cluster.local") {
					found++
					if got := upstreamOf(t, decode(t, r).(*clusterv3.Cluster)); !strings.HasSuffix(got, " sans a,b,c") {
						t.Errorf("%s: %s", r.Name, got)
					}
				}
			}
			if found != 6 {
				t.Errorf("%d clusters", found)
			}
		})
	}
	wait.Wait()
	for _, c := range list {
		if c.Kind == kinds.DestinationRule {
			if names := c.Object.Spec.(*networkingv1.DestinationRule).TrafficPolicy.Tls.SubjectAltNames; !slices.Equal(names,
				[]string{"c", "a", "b", "a"}) {
				t.Errorf("the names of the rule are %q now", names)
			}
		}
	}
}
