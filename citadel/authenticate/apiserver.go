package authenticate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// APIServer is the Cluster behind an API server. It learns the issuer and the keys from the discovery documents that
// every service account may read. Safe for concurrent use.
type APIServer struct {
	keys    *KeySet
	reviews dynamic.NamespaceableResourceInterface
	get     func(ctx context.Context, path string) ([]byte, error)
	issuer  *latest[string]
}

// Size and time of what an API server answers.
const (
	maxDiscovery   = 1 << 20
	discoveryTime  = 5 * time.Second
	discoveryPath  = "/.well-known/openid-configuration"
	keysPath       = "/openid/v1/jwks"
	extraPodName   = "authentication.kubernetes.io/pod-name"
	extraPodUID    = "authentication.kubernetes.io/pod-uid"
	extraNodeName  = "authentication.kubernetes.io/node-name"
	reviewedByName = "tokenreviews"
)

// NewAPIServer returns the Cluster of a client. Redirects are not followed: another cluster's API server could lead
// this server anywhere.
func NewAPIServer(c *rest.Config) (*APIServer, error) {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil // reviews have a bound of their own
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	following := *client // it may be the one of all
	following.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client = &following
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, err
	}
	reviews, err := dynamic.NewForConfigAndClient(c, client)
	if err != nil {
		return nil, err
	}
	a := &APIServer{
		reviews: reviews.Resource(authenticationv1.SchemeGroupVersion.WithResource(reviewedByName)),
		get: func(ctx context.Context, path string) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, discoveryTime)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base.String(), "/")+path, nil)
			if err != nil {
				return nil, err
			}
			answer, err := client.Do(r)
			if err != nil {
				return nil, err
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != http.StatusOK {
				return nil, fmt.Errorf("%s answers %d", path, answer.StatusCode)
			}
			return io.ReadAll(io.LimitReader(answer.Body, maxDiscovery))
		},
	}
	a.keys = NewKeySet(func(ctx context.Context) ([]byte, error) { return a.get(ctx, keysPath) })
	a.issuer = &latest[string]{ask: a.discover}
	return a, nil
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
	in, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	})
	if err != nil {
		return Review{}, err
	}
	u, err := a.reviews.Create(ctx, &unstructured.Unstructured{Object: in}, metav1.CreateOptions{})
	if err != nil {
		return Review{}, errors.New("the API server does not answer a TokenReview: " + strings.ReplaceAll(err.Error(), token, "[redacted]"))
	}
	var out authenticationv1.TokenReview
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &out); err != nil {
		return Review{}, err
	}
	extra := func(key string) string {
		if v := out.Status.User.Extra[key]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	return Review{
		Authenticated: out.Status.Authenticated && out.Status.Error == "", Username: out.Status.User.Username, Audiences: out.Status.Audiences,
		Pod: extra(extraPodName), PodUID: extra(extraPodUID), Node: extra(extraNodeName),
	}, nil
}
