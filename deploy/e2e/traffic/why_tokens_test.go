package traffic

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// whyIssuer signs tokens.
type whyIssuer struct {
	t   *testing.T
	key *rsa.PrivateKey
}

const issuerURL = "https://issuer.example"

func newWhyIssuer(t *testing.T) *whyIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	return &whyIssuer{t, key}
}

// policies make the issuer's tokens valid at the gateway and at the application, and depend on their claims.
func (i *whyIssuer) policies() string {
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	must.Succeed(i.t, err)
	return fmt.Sprintf(`---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: echo, namespace: a}
spec:
  selector: {matchLabels: {svc: echo}}
  jwtRules: [{issuer: %[1]q, audiences: [echo], forwardOriginalToken: true, jwks: '%[2]s'}]
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: gateway, namespace: a}
spec:
  selector: {matchLabels: {app: gateway}}
  jwtRules: [{issuer: %[1]q, jwks: '%[2]s'}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: claims, namespace: a}
spec:
  selector: {matchLabels: {svc: echo}}
  action: DENY
  rules:
  - to: [{operation: {paths: ["/claims*"]}}]
    when: [{key: "request.auth.claims[groups]", notValues: [admin, "op*"]}]
  - to: [{operation: {paths: ["/claims/of/jane"]}}]
    from: [{source: {notRequestPrincipals: ["https://issuer.example/jane"]}}]
`, issuerURL, set)
}

// token returns a token with claims in addition to its issuer and its expiry.
func (i *whyIssuer) token(claims map[string]any) string {
	i.t.Helper()
	all := map[string]any{"iss": issuerURL, "aud": "echo", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
	}
	return sign(i.t, jose.SigningKey{Algorithm: jose.RS256, Key: i.key}, "k", all)
}

// requests are the requests with tokens: without one, with claims of all kinds, and with tokens that no policy accepts.
func (i *whyIssuer) requests() (list []request) {
	tokens := []string{"",
		i.token(map[string]any{"groups": "admin"}), i.token(map[string]any{"groups": []string{"x", "operators"}}),
		i.token(map[string]any{"groups": []string{"user"}, "sub": "jane"}),
		i.token(map[string]any{"groups": []string{"admin"}, "sub": "jane"}), i.token(nil),
		i.token(map[string]any{"scope": "read write", "groups": 7}),
		i.token(map[string]any{"iss": "https://other.example"}), i.token(map[string]any{"aud": []string{"others"}, "groups": "admin"}),
		i.token(map[string]any{"exp": 1}),
	}
	for _, path := range []string{"/claims/x", "/claims/of/jane", "/claimed", "/scoped", "/user"} {
		for _, token := range tokens {
			headers := map[string]string{}
			if token != "" {
				headers["authorization"] = "Bearer " + token
			}
			list = append(list, request{from: "client", address: "10.96.0.10:80", host: "echo", method: "GET", path: path, headers: headers},
				request{from: "plain", address: whyGatewayPod + ":8080", host: "a.example.com", method: "GET", path: path, headers: headers})
		}
	}
	return list
}
