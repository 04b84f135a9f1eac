package authenticate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// APIServer is the Cluster behind an API server. It learns the issuer and the keys from the discovery documents that
// every service account may read. Safe for concurrent use.
type APIServer struct {
	client *apiserver.Client
	keys   *KeySet
	issuer *latest[string]
}

// Timeout, size bound and paths of requests to an API server.
const (
	discoveryTime = 5 * time.Second
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/openid/v1/jwks"
	reviewPath    = "/apis/authentication.k8s.io/v1/tokenreviews"
	extraPodName  = names.ExtraPodName
	extraPodUID   = names.ExtraPodUID
	extraNodeName = names.ExtraNodeName
)

// NewAPIServer returns the Cluster of a client.
func NewAPIServer(c *rest.Config) (*APIServer, error) {
	client, err := apiserver.New(c)
	a := &APIServer{client: client}
	a.keys = NewKeySet(func(ctx context.Context) ([]byte, error) { return a.get(ctx, keysPath) })
	a.issuer = &latest[string]{ask: a.discover}
	return a, err
}

func (a *APIServer) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	return a.client.Get(ctx, path)
}

// Issuer returns the issuer of the cluster's tokens.
func (a *APIServer) Issuer(ctx context.Context) (string, error) {
	return a.issuer.get(ctx, func(string) bool { return false })
}

// discover asks for the issuer.
func (a *APIServer) discover(ctx context.Context) (string, error) {
	text, err := a.get(ctx, discoveryPath)
	if err != nil {
		return "", err
	}
	var d struct {
		Issuer string `json:"issuer"`
	}
	switch err := json.Unmarshal(text, &d); {
	case err != nil:
		return "", fmt.Errorf("%s: %w", discoveryPath, err)
	case d.Issuer == "":
		return "", fmt.Errorf("%s names no issuer", discoveryPath)
	}
	return d.Issuer, nil
}

// Key returns the public key of an ID.
func (a *APIServer) Key(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	return a.keys.Key(ctx, id)
}

// Review asks the API server about a token.
func (a *APIServer) Review(ctx context.Context, token string, audiences []string) (Review, error) {
	r := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
	if err := a.client.Review(ctx, reviewPath, &r); err != nil {
		return Review{}, errors.New("the API server does not answer a TokenReview: " + strings.ReplaceAll(err.Error(), token, "[redacted]"))
	}
	extra := func(key string) string {
		if v := r.Status.User.Extra[key]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	return Review{
		Authenticated: r.Status.Authenticated && r.Status.Error == "", Username: r.Status.User.Username, Audiences: r.Status.Audiences,
		Pod: extra(extraPodName), PodUID: extra(extraPodUID), Node: extra(extraNodeName),
	}, nil
}
