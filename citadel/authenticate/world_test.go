package authenticate_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

var (
	start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of every synctest.Test
	web   = identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
)

// issuer makes tokens.
type issuer struct {
	key *rsa.PrivateKey
	id  string
}

func newIssuer(t testing.TB, id string) *issuer {
	t.Helper()
	k := must(rsa.GenerateKey(rand.Reader, 2048))
	return &issuer{k, id}
}

func (i *issuer) jwks() []byte {
	b, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: i.id, Algorithm: "RS256", Use: "sig"}}})
	return b
}

// claims returns the claims of a good token, with changes. A nil value removes a claim.
func claims(changes map[string]any) map[string]any {
	c := map[string]any{
		"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:a:web", "aud": []string{"istio-ca"},
		"iat": start.Unix(), "nbf": start.Unix(), "exp": start.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "a", "serviceaccount": map[string]any{"name": "web", "uid": "1"}, "pod": map[string]any{"name": "web-0", "uid": "2"},
		},
	}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (i *issuer) token(t testing.TB, changes map[string]any) string {
	t.Helper()
	s := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil))
	text := must(jwt.Signed(s).Claims(claims(changes)).Serialize())
	return text
}

// cluster is a Cluster whose answers are given.
type cluster struct {
	keys    *authenticate.KeySet
	pods    map[string]identity.Pod
	synced  bool
	reviews atomic.Int64
	review  func(token string) (authenticate.Review, error)
}

func (c *cluster) Issuer(context.Context) (string, error) {
	return "https://kubernetes.default.svc", nil
}

func (c *cluster) Key(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	return c.keys.Key(ctx, id)
}

func (c *cluster) Pod(_, namespace, name string) (identity.Pod, bool) {
	return c.pods[namespace+"/"+name], c.synced
}

func (c *cluster) Review(_ context.Context, token string, _ []string) (authenticate.Review, error) {
	c.reviews.Add(1)
	return c.review(token)
}

func newCluster(i *issuer) *cluster {
	return &cluster{
		keys:   authenticate.NewKeySet(func(context.Context) ([]byte, error) { return i.jwks(), nil }),
		pods:   map[string]identity.Pod{"a/web-0": {UID: "2", ServiceAccount: "web", Node: "n1"}},
		synced: true,
		review: func(string) (authenticate.Review, error) { return authenticate.Review{}, nil },
	}
}

// Get makes a cluster the only one, of the ID one, beside one that has not been read yet.
func (c *cluster) Get(id string) (authenticate.Cluster, bool, error) {
	if id == "late" {
		return nil, false, errors.New("cluster late is not read yet")
	}
	return c, id == "one", nil
}

func kubernetes(c *cluster) *authenticate.Kubernetes {
	return kubernetesOf(c, c)
}

func kubernetesOf(clusters authenticate.Clusters, pods authenticate.Pods) *authenticate.Kubernetes {
	return authenticate.NewKubernetes(authenticate.KubernetesOptions{
		TrustDomains: &domains{}, Audiences: []string{"istio-ca"}, Clusters: clusters, Pods: pods,
		ClusterID: "one", ClusterAliases: map[string]string{"uno": "one"}, Logger: slog.New(slog.DiscardHandler),
	})
}

// domains trusts cluster.local and alias. Roots are good unless they are in a list.
type domains struct {
	federated, bad []*x509.Certificate
	revokes        bool
	unverified     error // of Chains
	untrusted      error // of VerifyTrust
	alias          bool  // alias has federated roots
}

func (*domains) TrustDomain() string { return "cluster.local" }

func (*domains) Trusts(trustDomain string) bool {
	return trustDomain == "cluster.local" || trustDomain == "alias"
}

func (d *domains) VerifyTrust(chain []*x509.Certificate, trustDomain string) (federated bool, err error) {
	root := chain[len(chain)-1]
	if slices.Contains(d.bad, root) || trustDomain != "cluster.local" {
		return false, errors.New("revoked")
	}
	return slices.Contains(d.federated, root), d.untrusted
}

func (d *domains) Chains(list []*x509.Certificate) ([][]*x509.Certificate, error) {
	return [][]*x509.Certificate{list}, d.unverified
}

func (d *domains) Federated(trustDomain string) bool { return d.alias && trustDomain == "alias" }

func (d *domains) Revokes() bool { return d.revokes }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
