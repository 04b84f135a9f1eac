package authenticate_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
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
	pods    map[string]authenticate.Pod
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

func (c *cluster) Pod(namespace, name string) (authenticate.Pod, bool) {
	return c.pods[namespace+"/"+name], c.synced
}

func (c *cluster) Review(_ context.Context, token string, _ []string) (authenticate.Review, error) {
	c.reviews.Add(1)
	return c.review(token)
}

func newCluster(i *issuer) *cluster {
	return &cluster{
		keys:   authenticate.NewKeySet(func(context.Context) ([]byte, error) { return i.jwks(), nil }, func() time.Time { return start }),
		pods:   map[string]authenticate.Pod{"a/web-0": {UID: "2", ServiceAccount: "web", Node: "n1"}},
		synced: true,
		review: func(string) (authenticate.Review, error) { return authenticate.Review{}, nil },
	}
}

func kubernetes(c authenticate.Cluster) *authenticate.Kubernetes {
	return authenticate.NewKubernetes(authenticate.KubernetesOptions{
		TrustDomain: func() string { return "cluster.local" }, Audiences: []string{"istio-ca"}, Now: func() time.Time { return start },
		Cluster: func(name string) (string, authenticate.Cluster, error) {
			switch name {
			case "", "one":
				return "one", c, nil
			case "late":
				return "", nil, fmt.Errorf("%w: cluster late is not read yet", authenticate.ErrUnavailable)
			}
			return "", nil, errors.New("no such cluster")
		},
		Logger: slog.New(slog.DiscardHandler),
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
