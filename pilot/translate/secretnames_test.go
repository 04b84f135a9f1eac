package translate_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	apiidentity "github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// secretNames is how many names TestSecretNames asks for.
const secretNames = 100_000

// gatewayYAML has a Gateway in each of two namespaces, which name Secrets in all ways.
const gatewayYAML = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: NS}
spec:
  selector: {istio: NS}
  servers:
  - {port: {number: 443, name: s, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: MUTUAL, credentialName: x}}
  - {port: {number: 443, name: t, protocol: HTTPS}, hosts: [two.example.com],
      tls: {mode: SIMPLE, credentialName: "kubernetes-gateway://b/y"}}
  - {port: {number: 443, name: u, protocol: HTTPS}, hosts: [three.example.com], tls: {mode: SIMPLE, credentialName: "kubernetes://b/z"}}
---
`

// mayHave is the oracle of TestSecretNames: it returns what a gateway in a namespace, with an identity there, may be
// sent for a name. That is nothing unless the name is exactly one that its Gateway has and leads to its own namespace.
func mayHave(namespace, name string) string {
	switch name {
	case "kubernetes://x":
		return namespace + "/x"
	case "kubernetes://x-cacert":
		return "roots of " + namespace + "/x"
	case "kubernetes-gateway://b/y", "kubernetes://b/z":
		if namespace == "b" {
			return "b/" + name[len(name)-1:]
		}
	}
	return ""
}

// TestSecretNames asks for secrets by names made of all that names are made of, as gateways of two namespaces in turn,
// so that what one was sent is cached when the other asks. Nobody is sent what the oracle does not say.
func TestSecretNames(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	changes := objects(t, "world.yaml", []byte(strings.ReplaceAll(gatewayYAML, "NS", "a")+strings.ReplaceAll(gatewayYAML, "NS", "b")))
	for _, ns := range []string{"a", "b", "istio-system"} {
		for _, name := range []string{"x", "y", "z"} {
			for _, kind := range []*kinds.Kind{kinds.SecretCredential, kinds.ConfigMapCredential} {
				k, what := kinds.Key{Kind: kind, Namespace: ns, Name: name}, ns+"/"+name
				changes = append(changes, kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: &credentials.Credential{
					Certificate: &credentials.Certificate{Chain: []byte(what), Key: []byte("key of " + what)},
					Roots:       &credentials.Roots{Certificates: []byte("roots of " + what)},
				}}})
			}
		}
	}
	s := w.apply(changes...)
	decides := authorize.New(authorize.Options{})
	type client struct {
		namespace string
		key       cohort.Key
		peer      apiidentity.Peer
	}
	var clients []client
	for _, ns := range []string{"a", "b"} {
		p := &node.Proxy{
			Type: node.Router, ID: "gw." + ns, Name: "gw", Namespace: ns, Domain: ns + ".svc.cluster.local", IPs: []string{"10.1.0.9"},
			Cluster: "Kubernetes",
			Labels:  map[string]string{"istio": ns}, Capabilities: everything,
		}
		clients = append(clients, client{ns, tr.ResolveCohort(s, p),
			apiidentity.Peer{ID: apiidentity.ID{TrustDomain: "cluster.local", Namespace: ns, ServiceAccount: "gw"}, Proof: apiidentity.Certificate}})
	}
	seed, _ := histories.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // nothing is secret
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	sent := map[string]int{}
	for range secretNames / len(clients) {
		name := pick("kubernetes://", "kubernetes://", "kubernetes-gateway://", "configmap://", "Kubernetes://", "builtin://", "") +
			pick("", "", "a/", "b/", "b/", "istio-system/", "../b/", "a/../b/", "b%2F", "/", "*/", "b/b/") +
			pick("x", "x", "y", "z", "*", "", "X", "x ", "x\x00", "x/y") +
			pick("", "", "-cacert", "-cacert-cacert", "/", "?", "#")
		for _, c := range clients {
			got := ""
			if ns, ok := names.SecretNamespace(name, c.namespace); ok && decides.Secret(c.peer, ns) == nil {
				if r := tr.Resource(s, c.key, envoy.SecretType, name); r != nil {
					m := &tlsv3.Secret{}
					unpack(t, r.Value(), m)
					got = string(slices.Concat(m.GetTlsCertificate().GetCertificateChain().GetInlineBytes(),
						m.GetValidationContext().GetTrustedCa().GetInlineBytes()))
				}
			}
			if want := mayHave(c.namespace, name); got != want {
				t.Fatalf("namespace %s is sent %q for %q, want %q", c.namespace, got, name, want)
			}
			sent[got]++
		}
	}
	if len(sent) != 7 {
		t.Errorf("what was sent: %v", sent)
	}
}
