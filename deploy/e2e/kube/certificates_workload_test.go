package kube

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
	authv1 "istio.io/api/security/v1alpha1"
	"k8s.io/client-go/util/keyutil"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// workload sends requests as the agent of a workload does.
type workload struct {
	conn  *grpc.ClientConn
	token string
	// cluster is the cluster ID that the workload sends. Optional.
	cluster string
	// asks are the names in its certificate requests.
	asks []string
	// signer is the signer that it requests. Empty means the default signer.
	signer string
}

// dial dials the secure port of a server by the name of its Service.
func dial(t *testing.T, address string, roots *x509.CertPool, token string, own ...tls.Certificate) workload {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: roots, ServerName: "istiod.istio-system.svc", Certificates: own,
	})))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return workload{conn: conn, token: token}
}

func (w workload) context(ctx context.Context) context.Context {
	if w.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.token)
	}
	if w.cluster != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "clusterid", w.cluster)
	}
	return ctx
}

// certificate requests a certificate, with the name of another identity if that is not empty.
func (w workload) certificate(ctx context.Context, impersonate string) (tls.Certificate, error) {
	key, err := pki.GenerateKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	names := &x509.CertificateRequest{}
	for _, text := range w.asks {
		u, err := url.Parse(text)
		if err != nil {
			return tls.Certificate{}, err
		}
		names.URIs = append(names.URIs, u)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, names, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	request := &authv1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}
	request.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, value := range map[string]string{"ImpersonatedIdentity": impersonate, "CertSigner": w.signer} {
		if value != "" {
			request.Metadata.Fields[key] = structpb.NewStringValue(value)
		}
	}
	a, err := authv1.NewIstioCertificateServiceClient(w.conn).CreateCertificate(w.context(ctx), request)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := tls.Certificate{PrivateKey: key}
	for _, text := range a.CertChain[:len(a.CertChain)-1] {
		b, _ := pem.Decode([]byte(text))
		c.Certificate = append(c.Certificate, b.Bytes)
	}
	c.Leaf, err = x509.ParseCertificate(c.Certificate[0])
	return c, err
}

// stream opens a stream as the proxy of a pod, and returns the result of a subscription to clusters.
func (w workload) stream(ctx context.Context, pod, namespace string) error {
	return w.streamOf(ctx, pod, namespace, w.cluster)
}

// streamOf is stream for a proxy with another cluster ID.
func (w workload) streamOf(ctx context.Context, pod, namespace, cluster string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).StreamAggregatedResources(w.context(ctx))
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: fmt.Sprintf("sidecar~10.20.0.9~%s.%s~%s.svc.cluster.local", pod, namespace, namespace)}
	if cluster != "" {
		node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"CLUSTER_ID": structpb.NewStringValue(cluster)}}
	}
	_ = s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: node}) // the response contains the error
	_, err = s.Recv()
	return err
}

// uri returns the name that a certificate has.
func uri(c tls.Certificate) string {
	var names []string
	for _, u := range c.Leaf.URIs {
		names = append(names, u.String())
	}
	return strings.Join(names, ",")
}

// resign returns a token with other claims, signed with a key in a file.
func resign(token, keyFile string, change func(claims map[string]any)) (string, error) {
	algorithms := []jose.SignatureAlgorithm{jose.ES256, jose.RS256}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return "", err
	}
	claims := map[string]any{}
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return "", err
	}
	change(claims)
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return "", err
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return "", err
	}
	head := parsed.Headers[0]
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.SignatureAlgorithm(head.Algorithm), Key: jose.JSONWebKey{Key: key, KeyID: head.KeyID}}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}

// forge returns a certificate of a name that a CA signs.
func forge(b *pki.Bundle, uri string) (tls.Certificate, error) {
	key, err := pki.GenerateKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	der, _, err := b.Sign(pki.Leaf{URI: uri, Key: key.Public(), TTL: time.Hour}, time.Now())
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
