package kube

import (
	"crypto"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// farGateway names three Secrets for the gateways of namespace a.
const farGateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: a}
spec:
  selector: {istio: ingress}
  servers:
  - {port: {number: 8443, name: one, protocol: HTTPS}, hosts: [one.example.com], tls: {mode: SIMPLE, credentialName: one}}
  - {port: {number: 8443, name: both, protocol: HTTPS}, hosts: [both.example.com], tls: {mode: SIMPLE, credentialName: both}}
  - {port: {number: 8443, name: own, protocol: HTTPS}, hosts: [own.example.com], tls: {mode: SIMPLE, credentialName: own}}
`

// mayListSecrets lets the account gw list the Secrets of namespace a.
const mayListSecrets = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gw, namespace: a}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gw, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gw}
subjects: [{kind: ServiceAccount, name: gw, namespace: a}]
`

// secretsOf holds what a proxy was sent: the chain of each secret, by name.
type secretsOf struct {
	mu  sync.Mutex
	has map[string]string
}

// follow subscribes to secrets as the gateway gw-0 of namespace a of a cluster, and records the responses.
func (w *world) follow(agent workload, names ...string) *secretsOf {
	w.T.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(agent.conn).StreamAggregatedResources(agent.context(w.Ctx))
	w.Must(err)
	ask := &discoveryv3.DiscoveryRequest{TypeUrl: envoy.SecretType, Node: &corev3.Node{
		Id:       "router~10.20.0.9~gw-0.a~a.svc.cluster.local",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"CLUSTER_ID": structpb.NewStringValue(agent.cluster)}},
	}}
	for _, name := range names {
		ask.ResourceNames = append(ask.ResourceNames, "kubernetes://"+name)
	}
	w.Must(stream.Send(ask))
	got := &secretsOf{has: map[string]string{}}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			got.mu.Lock()
			for _, x := range m.Resources {
				s := &tlsv3.Secret{}
				if x.UnmarshalTo(s) == nil {
					got.has[strings.TrimPrefix(s.Name, "kubernetes://")] = string(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
				}
			}
			got.mu.Unlock()
			_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: ask.TypeUrl, VersionInfo: m.VersionInfo, ResponseNonce: m.Nonce,
				ResourceNames: ask.ResourceNames})
		}
	}()
	return got
}

// are returns an error unless a proxy has exactly these secrets, by name.
func (s *secretsOf) are(want map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.has, want) {
		return fmt.Errorf("it has %q", slices.Sorted(maps.Keys(s.has)))
	}
	return nil
}

// putSecret writes a Secret with a new certificate, and returns the certificate.
func (w *world) putSecret(name string) string {
	w.T.Helper()
	b, err := pki.NewSelfSigned(name, time.Hour, time.Now())
	w.Must(err)
	c, err := forge(b, "spiffe://cluster.local/ns/a/sa/"+name)
	w.Must(err)
	key, err := pki.EncodeKey(c.PrivateKey.(crypto.Signer))
	w.Must(err)
	chain := pki.EncodeCertificates(c.Leaf)
	secrets := w.Client().CoreV1().Secrets("a")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"tls.crt": chain, "tls.key": key}}
	if _, err = secrets.Create(w.Ctx, s, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(w.Ctx, s, metav1.UpdateOptions{})
	}
	w.Must(err)
	return string(chain)
}

// reviewed matches the metric of an API server with the number of SubjectAccessReviews.
var reviewed = regexp.MustCompile(`apiserver_request_total\{[^}]*resource="subjectaccessreviews"[^}]*\} (\d+)`)

// reviews returns how many SubjectAccessReviews the API server has made.
func (w *world) reviews() int {
	w.T.Helper()
	text, err := w.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(w.Ctx)
	w.Must(err)
	n := 0
	for _, m := range reviewed.FindAllSubmatch(text, -1) {
		more, err := strconv.Atoi(string(m[1]))
		w.Must(err)
		n += more
	}
	return n
}

// TestRemoteSecrets: a gateway of a remote cluster gets the Secrets of its own cluster if that cluster lets its account
// list them. It gets no Secret of another cluster, whatever that allows. A Secret that its cluster lacks is a finding.
func TestRemoteSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	two, kubeconfig := w.second()
	gateway := strings.Replace(pod("a", "gw-0", "gw", "n1"), "namespace: a}", "namespace: a, labels: {istio: ingress}}", 1)
	w.Write(gateway + "---" + farGateway + "---" + mayListSecrets)
	two.Write(gateway)
	ownBoth, own := w.putSecret("both"), w.putSecret("own")
	one, both := two.putSecret("one"), two.putSecret("both")
	w.name("two", kubeconfig)
	r := w.launch("istiod-0").Ready()
	names := []string{"one", "both", "own"}

	near := w.follow(dial(t, r.SecureGRPC, w.secretRoots(), w.token("a", "gw", "gw-0", "istio-ca")), names...)
	w.Eventually("a gateway of the server's cluster has its Secrets", func() error {
		return near.are(map[string]string{"both": ownBoth, "own": own})
	})
	agent := dial(t, r.SecureGRPC, w.secretRoots(), two.token("a", "gw", "gw-0", "istio-ca"))
	agent.cluster = "two"
	w.Eventually("the remote cluster is known", func() error { return agent.stream(w.Ctx, "gw-0", "a") })
	far := w.follow(agent, names...)
	w.Eventually("the remote cluster has answered, and is asked again", func() error {
		if n := two.reviews(); n < 2 {
			return fmt.Errorf("%d reviews", n)
		}
		return nil
	})
	if err := far.are(map[string]string{}); err != nil {
		t.Errorf("without the right in its own cluster: %v", err)
	}
	two.Write(mayListSecrets)
	w.Eventually("its cluster allows it", func() error { return far.are(map[string]string{"one": one, "both": both}) })
	one = two.putSecret("one")
	w.Eventually("a Secret of its cluster is replaced", func() error { return far.are(map[string]string{"one": one, "both": both}) })
	w.Eventually("what its cluster lacks is a finding", func() error {
		resp, err := http.Get("http://" + r.HTTP + "/debug/findings")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(text), "Secret a/own of cluster two does not exist") {
			err = fmt.Errorf("the findings are %s", text)
		}
		return err
	})
	if err := near.are(map[string]string{"both": ownBoth, "own": own}); err != nil {
		t.Errorf("the gateway of the server's cluster: %v", err)
	}
}
