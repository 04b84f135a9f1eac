package traffic

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// jwtIssuer issues tokens, and serves its key while it listens.
type jwtIssuer struct {
	t       *testing.T
	address string // of its server

	mu  sync.Mutex
	id  string
	key *rsa.PrivateKey
}

func newJWTIssuer(t *testing.T, address string) *jwtIssuer {
	i := &jwtIssuer{t: t, address: address}
	i.rotate("1")
	return i
}

// rotate replaces the key.
func (i *jwtIssuer) rotate(id string) {
	i.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(i.t, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id, i.key = id, key
}

// keySet returns the key set, also in the form for policies.
func (i *jwtIssuer) keySet() string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: i.id, Algorithm: "RS256", Use: "sig"}}})
	must.Succeed(i.t, err)
	return string(set)
}

// serve serves the key set at /keys on a listener at its address. It returns a function that ends it.
func (i *jwtIssuer) serve(listen func(address string) (net.Listener, error)) (stop func()) {
	i.t.Helper()
	l, err := listen(i.address)
	must.Succeed(i.t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(i.keySet())) })
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url(), "jwks_uri": i.url() + "/keys"})
	})
	server := &http.Server{Handler: mux} //nolint:gosec // a test's
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	return func() { _ = server.Close(); <-ended }
}

func (i *jwtIssuer) url() string { return "http://" + i.address }

// claims are the claims of a token.
type claims map[string]any

// with returns the claims with some replaced. nil removes a claim.
func (c claims) with(others claims) claims {
	out := claims{}
	for k, v := range c {
		out[k] = v
	}
	for k, v := range others {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func soon() int64 { return time.Now().Add(time.Hour).Unix() }

// token returns a token that the issuer signs.
func (i *jwtIssuer) token(c claims) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return sign(i.t, jose.SigningKey{Algorithm: jose.RS256, Key: i.key}, i.id, c)
}

// forged returns a token that names the issuer's key and is signed with its public part as a shared secret.
func (i *jwtIssuer) forged(c claims) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	public, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	must.Succeed(i.t, err)
	return sign(i.t, jose.SigningKey{Algorithm: jose.HS256, Key: public}, i.id, c)
}

func sign(t *testing.T, key jose.SigningKey, id string, c claims) string {
	t.Helper()
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", id))
	must.Succeed(t, err)
	payload, err := json.Marshal(c)
	must.Succeed(t, err)
	s, err := signer.Sign(payload)
	must.Succeed(t, err)
	text, err := s.CompactSerialize()
	must.Succeed(t, err)
	return text
}
