package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// secretWorld names Secrets in all ways.
const secretWorld = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: c}
spec:
  selector: {istio: ingress}
  servers:
  - {port: {number: 443, name: s, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: MUTUAL, credentialName: x}}
  - {port: {number: 443, name: t, protocol: HTTPS}, hosts: [two.example.com],
      tls: {mode: MUTUAL, credentialName: kubernetes-gateway://a/x, caCertCredentialName: configmap://a/x}}
  - {port: {number: 443, name: u, protocol: HTTPS}, hosts: [three.example.com], tls: {mode: MUTUAL, credentialName: a/x}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: rule, namespace: b}
spec: {host: example.com, trafficPolicy: {tls: {mode: MUTUAL, credentialName: "y"}}}
`

// TestSecrets: a name leads to the object in the namespace that it says, for a proxy that is selected by a Gateway
// which names it, or if a DestinationRule does. Nothing else is ever made, whatever was asked for before.
func TestSecrets(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	credential := func(kind *kinds.Kind, namespace, name, holds string) kinds.Change {
		k := kinds.Key{Kind: kind, Namespace: namespace, Name: name}
		c := &credentials.Credential{}
		what := namespace + "/" + name
		if strings.Contains(holds, "c") {
			c.Certificate = &credentials.Certificate{Chain: []byte(what), Key: []byte("key of " + what)}
		}
		if strings.Contains(holds, "r") {
			c.Roots = &credentials.Roots{Certificates: []byte("roots of " + what)}
		}
		return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: c}}
	}
	changes := objects(t, "world.yaml", []byte(secretWorld))
	for _, ns := range []string{"a", "b"} {
		changes = append(changes, credential(kinds.SecretCredential, ns, "x", "cr"), credential(kinds.SecretCredential, ns, "y", "cr"),
			credential(kinds.SecretCredential, ns, "z", "cr"))
	}
	changes = append(changes, credential(kinds.SecretCredential, "b", "x-cacert", "r"), credential(kinds.ConfigMapCredential, "a", "x", "r"))
	far := credential(kinds.SecretCredential, "a", "x", "cr")
	far.Cluster, far.Object.Cluster = "far", "far"
	far.Object.Spec = &credentials.Credential{Certificate: &credentials.Certificate{Chain: []byte("a/x of far")},
		Roots: &credentials.Roots{Certificates: []byte("roots of far")}}
	changes = append(changes, far)
	s := w.apply(changes...)
	gateway := func(namespace, label string) *node.Proxy {
		return &node.Proxy{
			Type: node.Router, ID: "gw." + namespace, Name: "gw", Namespace: namespace, Domain: namespace + ".svc.cluster.local",
			IPs: []string{"10.1.0.9"}, Cluster: "Kubernetes",
			Labels: map[string]string{"istio": label}, Capabilities: everything,
		}
	}
	in := func(cluster string, p *node.Proxy) *node.Proxy {
		p.Cluster = cluster
		return p
	}
	holds := func(r *envoy.Resource) string {
		if r == nil {
			return ""
		}
		m := &tlsv3.Secret{}
		unpack(t, r.Value(), m)
		if m.Name != r.Name || !r.Secret() {
			t.Errorf("%s is called %s", r.Name, m.Name)
		}
		if c := m.GetTlsCertificate(); c != nil {
			return string(c.GetCertificateChain().GetInlineBytes())
		}
		return string(m.GetValidationContext().GetTrustedCa().GetInlineBytes())
	}
	for _, c := range []struct {
		proxy *node.Proxy
		want  map[string]string
	}{
		{gateway("a", "ingress"), map[string]string{
			"kubernetes://x": "a/x", "kubernetes://x-cacert": "roots of a/x", "kubernetes-gateway://a/x": "a/x",
			"configmap://a/x-cacert": "roots of a/x",
			"kubernetes://a/x":       "a/x", "kubernetes://a/x-cacert": "", "kubernetes://y": "a/y", "kubernetes://y-cacert": "roots of a/y",
		}},
		{gateway("b", "ingress"), map[string]string{
			"kubernetes://x": "b/x", "kubernetes://x-cacert": "roots of b/x-cacert", "kubernetes-gateway://a/x": "a/x",
			"configmap://a/x-cacert": "roots of a/x",
			"kubernetes://a/x":       "a/x", "kubernetes://a/x-cacert": "", "kubernetes://y": "b/y", "kubernetes://y-cacert": "roots of b/y",
		}},
		{gateway("a", "other"), map[string]string{"kubernetes://y": "a/y", "kubernetes://y-cacert": "roots of a/y"}},
		{in("far", gateway("a", "ingress")), map[string]string{ // the Secrets of its own cluster alone
			"kubernetes://x": "a/x of far", "kubernetes://x-cacert": "roots of far", "kubernetes-gateway://a/x": "a/x of far",
			"kubernetes://a/x":        "a/x of far",
			"kubernetes://a/x-cacert": "roots of far",
		}},
		{in("elsewhere", gateway("a", "other")), map[string]string{}},
		{gateway("c", "ingress"), map[string]string{"kubernetes-gateway://a/x": "a/x", "configmap://a/x-cacert": "roots of a/x",
			"kubernetes://a/x": "a/x"}},
	} {
		k := tr.ResolveCohort(s, c.proxy)
		for _, name := range []string{
			"kubernetes://x", "kubernetes://x-cacert", "kubernetes-gateway://a/x", "configmap://a/x-cacert", "configmap://a/x",
			"kubernetes://a/x", "kubernetes://a/x-cacert", "kubernetes://y", "kubernetes://y-cacert",
			"kubernetes://z", "kubernetes://b/x", "kubernetes://a/../b/x", "kubernetes://b/y", "a/x", "default", "ROOTCA", "*", "kubernetes://",
		} {
			want := c.want[name]
			if name == "kubernetes://a/x-cacert" && c.proxy.Cluster == "Kubernetes" { // the third server is MUTUAL too
				want = map[bool]string{true: "roots of a/x"}[c.proxy.Labels["istio"] == "ingress"]
			}
			if got := holds(tr.Resource(s, k, envoy.SecretType, name)); got != want {
				t.Errorf("%s in %s gets %q for %s, want %q", c.proxy.Labels["istio"], c.proxy.Namespace, got, name, want)
			}
		}
	}

	// Without an API server there is one place for all Secrets.
	files := *s
	files.OneStore = true
	fresh := newTranslator(1 << 20)
	if got := holds(fresh.Resource(&files, fresh.ResolveCohort(&files, in("elsewhere", gateway("a", "ingress"))), envoy.SecretType,
		"kubernetes://x")); got != "a/x" {
		t.Errorf("where all Secrets are in files, it is %q", got)
	}

	// A change costs what it concerns, and is no full one.
	p := gateway("a", "ingress")
	k := tr.ResolveCohort(s, p)
	before := tr.Resource(s, k, envoy.SecretType, "kubernetes://x-cacert")
	next := credential(kinds.SecretCredential, "a", "x", "cr")
	next.Object.Spec.(*credentials.Credential).Certificate.Chain = []byte("new")
	next.Object.Spec.(*credentials.Credential).Roots = s.Object(next.Key).Spec.(*credentials.Credential).Roots
	s = w.apply(next)
	if s.Diff.Full || !s.Diff.OnlySecrets() || fmt.Sprint(s.Diff.Triggers) != "map[secret:1]" || tr.Compare(s) {
		t.Errorf("%+v", s.Diff)
	}
	if got := holds(tr.Resource(s, k, envoy.SecretType, "kubernetes://x")); got != "new" {
		t.Errorf("after a change: %q", got)
	}
	if tr.Resource(s, k, envoy.SecretType, "kubernetes://x-cacert") != before {
		t.Error("what did not change is made again")
	}

	// A CA certificate in a Secret of its own is read from that Secret alone.
	gw := strings.Replace(strings.Split(secretWorld, "\n---\n")[0], "credentialName: x}", "credentialName: x, caCertCredentialName: x}", 1)
	named := w.apply(append(objects(t, "gw.yaml", []byte(gw)), credential(kinds.SecretCredential, "a", "x-cacert", "r"))...)
	k = tr.ResolveCohort(named, p)
	if got := holds(tr.Resource(named, k, envoy.SecretType, "kubernetes://x#ca")); got != "roots of a/x" {
		t.Errorf("the CA certificates that are named are %q", got)
	}
	if got := holds(tr.Resource(named, k, envoy.SecretType, "kubernetes://x-cacert")); got != "" {
		t.Errorf("nothing names the others, and they are %q", got)
	}

	// Without anybody who names it there is none.
	s = w.apply(kinds.Change{Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: "b", Name: "rule"}})
	if got := holds(tr.Resource(s, k, envoy.SecretType, "kubernetes://y")); got != "" {
		t.Errorf("without the rule: %q", got)
	}
	s = w.apply(kinds.Change{Key: kinds.Key{Kind: kinds.Gateway, Namespace: "c", Name: "gw"}})
	if !tr.NeedsReassign(s, p, k, s.Revision-1) {
		t.Error("the Gateway went, and no cohort")
	}
	if got := holds(tr.Resource(s, tr.ResolveCohort(s, p), envoy.SecretType, "kubernetes://x")); got != "" {
		t.Errorf("without the Gateway: %q", got)
	}
	if list := slices.Collect(tr.Wildcard(s, k, envoy.SecretType).All); len(list) > 0 {
		t.Errorf("without names: %v", list)
	}
}
