package authenticate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestGoodToken accepts a token without asking the API server.
func TestGoodToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		c := newCluster(i)
		asked, answer := make(chan struct{}), make(chan struct{})
		defer close(answer)
		c.review = func(string) (authenticate.Review, error) {
			close(asked)
			<-answer
			return authenticate.Review{}, errors.New("away")
		}
		p := must(kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil)}))
		if p.ID != web || p.Proof != identity.Token ||
			p.Bound != (identity.Bound{Cluster: "one", Pod: "web-0", PodUID: "2", Node: "n1"}) || !p.Expires.Equal(start.Add(time.Hour)) {
			t.Errorf("%+v", p)
		}
		<-asked // behind the caller's back, and nobody waits for the answer
	})
}

// TestBadTokens refuses tokens of every kind, and asks nobody about them.
func TestBadTokens(t *testing.T) {
	i, stranger := newIssuer(t, "k1"), newIssuer(t, "k1")
	unknown := newIssuer(t, "k9")
	part := func(v any) string {
		b := must(json.Marshal(v))
		return base64.RawURLEncoding.EncodeToString(b)
	}
	good := i.token(t, nil)
	split := strings.Split(good, ".")
	shared := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: x509.MarshalPKCS1PublicKey(&i.key.PublicKey)},
		(&jose.SignerOptions{}).WithHeader("kid", "k1")))
	confused := must(jwt.Signed(shared).Claims(claims(nil)).Serialize())
	// In Go's mode fips140=only, computing the certificate's SHA-1 thumbprint panics.
	certified := jose.JSONWebKey{Key: &i.key.PublicKey, Certificates: []*x509.Certificate{certificate(i.key)}}
	var embedded json.RawMessage
	fips140.WithoutEnforcement(func() { embedded = must(certified.MarshalJSON()) })
	twice := strings.Replace(string(must(json.Marshal(claims(nil)))), `"sub":`, `"sub":"system:serviceaccount:b:db","sub":`, 1)
	for name, text := range map[string]string{
		"three dots":             good + ".x",
		"one dot":                split[0] + "." + split[1],
		"empty parts":            "..",
		"a null payload":         ".bnVsbM.",
		"null":                   split[0] + "." + part(nil) + "." + split[2],
		"no algorithm":           part(map[string]string{"alg": "none"}) + "." + split[1] + ".",
		"the public key shared":  confused,
		"a key with certificate": part(map[string]any{"alg": "RS256", "kid": "k1", "jwk": embedded}) + "." + split[1] + "." + split[2],
		"a mebibyte":             strings.Repeat("a", 1<<20) + "." + split[1] + "." + split[2],
		"longer than it may be":  i.token(t, map[string]any{"more": strings.Repeat("x", 8<<10)}),
		"encrypted":              strings.Repeat("eyJhbGciOiJkaXIifQ.", 4) + "x",
		"claims changed":         split[0] + "." + part(claims(map[string]any{"sub": "system:serviceaccount:b:db"})) + "." + split[2],
		"claims twice":           split[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(twice)) + "." + split[2],
		"never expires":          i.token(t, map[string]any{"exp": nil}),
		"expired":                i.token(t, map[string]any{"exp": start.Add(-61 * time.Second).Unix()}),
		"in the future":          i.token(t, map[string]any{"nbf": start.Add(61 * time.Second).Unix()}),
		"issued in the future":   i.token(t, map[string]any{"iat": start.Add(61 * time.Second).Unix()}),
		"another audience":       i.token(t, map[string]any{"aud": []string{"vault"}}),
		"no audience":            i.token(t, map[string]any{"aud": nil}),
		"audience is a number":   i.token(t, map[string]any{"aud": 7}),
		"another issuer":         i.token(t, map[string]any{"iss": "https://elsewhere"}),
		"no service account":     i.token(t, map[string]any{"sub": "alice"}),
		"account without name":   i.token(t, map[string]any{"sub": "system:serviceaccount:a:"}),
		"a stranger's key":       stranger.token(t, nil),
		"an unknown key":         unknown.token(t, nil),
		"pod replaced":           i.token(t, map[string]any{"kubernetes.io": map[string]any{"pod": map[string]any{"name": "web-0", "uid": "1"}}}),
		"pod of another account": i.token(t, map[string]any{"sub": "system:serviceaccount:a:db"}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(i)
				p, err := kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: text})
				if err == nil || p.Proved() || errors.Is(err, authenticate.ErrUnavailable) || errors.Is(err, authenticate.ErrNoCredential) {
					t.Errorf("%+v, %v", p, err)
				}
				if c.reviews.Load() > 0 {
					t.Error("the API server was asked")
				}
				if err != nil && strings.Contains(err.Error(), split[2]) {
					t.Errorf("the error has the token's signature: %v", err)
				}
			})
		})
	}
}

func certificate(key *rsa.PrivateKey) *x509.Certificate {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: start.Add(time.Hour)}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))))
}

// TestTokenHasOneText: whoever has a token cannot make others of it, which would each be reviewed, or be good once
// after the token was revoked.
func TestTokenHasOneText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		gone := map[string]any{"kubernetes.io": map[string]any{"pod": map[string]any{"name": "web-9", "uid": "9"}}}
		c := newCluster(i)
		k := kubernetes(c)
		text := i.token(t, gone)
		_, _ = k.Authenticate(t.Context(), authenticate.Request{Token: text})
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		texts := 0
		for n := range len(text) {
			if n+1 < len(text) && text[n+1] != '.' || text[n] == '.' {
				continue // it is not the last of its part
			}
			for _, letter := range alphabet {
				other := text[:n] + string(letter) + text[n+1:]
				if other == text {
					continue
				}
				texts++
				if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: other}); err == nil {
					t.Errorf("%+v", p)
				}
			}
		}
		if n := c.reviews.Load(); texts != 3*63 || n != 1 {
			t.Errorf("%d texts of a token cost %d reviews", texts, n)
		}

		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k1")))
		set := must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}}))
		c = newCluster(i)
		c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return set, nil })
		k = kubernetes(c)
		text = must(jwt.Signed(signer).Claims(claims(gone)).Serialize())
		signed, signature := text[:strings.LastIndex(text, ".")+1], text[strings.LastIndex(text, ".")+1:]
		bytes := must(base64.RawURLEncoding.DecodeString(signature))
		s := new(big.Int).SetBytes(bytes[32:])
		s.Sub(key.Params().N, s).FillBytes(bytes[32:])
		for _, token := range []string{text, signed + base64.RawURLEncoding.EncodeToString(bytes)} {
			if _, err := k.Authenticate(t.Context(), authenticate.Request{Token: token}); err == nil || strings.Contains(err.Error(), "signature") {
				t.Errorf("%v", err)
			}
		}
		if n := c.reviews.Load(); n != 1 {
			t.Errorf("a token with both of its signatures costs %d reviews", n)
		}
	})
}

// TestGarbage has fifty callers present ten thousand tokens that nobody should believe, of every kind, while good ones
// are presented among them. The API server is asked about none of the bad ones, and for its keys hardly ever; the good
// ones count.
func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, stranger, unknown := newIssuer(t, "k1"), newIssuer(t, "k1"), newIssuer(t, "k9")
		c := newCluster(i)
		var fetches atomic.Int64
		c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) {
			fetches.Add(1)
			return i.jwks(), nil
		})
		good := i.token(t, nil)
		var askedOf sync.Map
		c.review = func(token string) (authenticate.Review, error) {
			askedOf.Store(token, true)
			return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web",
				Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2"}, nil
		}
		k := kubernetes(c)
		split := strings.Split(good, ".")
		bad := []string{
			stranger.token(t, nil), unknown.token(t, nil), i.token(t, map[string]any{"exp": start.Add(-time.Hour).Unix()}),
			i.token(t, map[string]any{"aud": "vault"}), i.token(t, map[string]any{"iss": "https://elsewhere"}),
			split[0] + "." + split[1] + ".", ".bnVsbM.", "garbage", strings.Repeat("a.", 100),
		}
		var wg sync.WaitGroup
		for caller := range 50 {
			wg.Go(func() {
				for n := range 200 {
					text := bad[(caller+n)%len(bad)]
					if n%2 == 0 { // one that was never seen
						text = split[0] + "." + split[1] + "." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d of %d", n, caller))
					}
					if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: text}); err == nil ||
						errors.Is(err, authenticate.ErrUnavailable) {
						t.Errorf("%.40q: %+v, %v", text, p, err)
					}
					if n%20 == 0 {
						if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: good}); err != nil || p.ID != web {
							t.Errorf("a good token: %+v, %v", p, err)
						}
					}
				}
			})
		}
		wg.Wait()
		askedOf.Range(func(token, _ any) bool {
			if token != good {
				t.Errorf("the API server was asked about %.40q", token)
			}
			return true
		})
		if n := fetches.Load(); n > 2 {
			t.Errorf("the keys were fetched %d times", n)
		}
	})
}

// FuzzToken authenticates by any text.
func FuzzToken(f *testing.F) {
	i := newIssuer(f, "k1")
	f.Add(i.token(f, nil))
	f.Add(".bnVsbM.")
	good := i.token(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		synctest.Test(t, func(t *testing.T) {
			p, err := kubernetes(newCluster(i)).Authenticate(t.Context(), authenticate.Request{Token: text})
			if err == nil && (text[:strings.LastIndex(text, ".")] != good[:strings.LastIndex(good, ".")] || p.ID != web) {
				t.Errorf("%q is %+v", text, p)
			}
		})
	})
}
