package authenticate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"net/url"
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
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
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
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims(changes)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
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

// TestGoodToken accepts a token without asking the API server.
func TestGoodToken(t *testing.T) {
	i := newIssuer(t, "k1")
	c := newCluster(i)
	asked, answer := make(chan struct{}), make(chan struct{})
	defer close(answer)
	c.review = func(string) (authenticate.Review, error) {
		close(asked)
		<-answer
		return authenticate.Review{}, errors.New("away")
	}
	p, err := kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != web || p.Proof != identity.Token || p.Bound != (identity.Bound{Cluster: "one", Pod: "web-0", PodUID: "2", Node: "n1"}) || !p.Expires.Equal(start.Add(time.Hour)) {
		t.Errorf("%+v", p)
	}
	<-asked // behind the caller's back, and nobody waits for the answer
}

// TestRevoked refuses a token that was verified here once the API server has said that it does not accept it.
func TestRevoked(t *testing.T) {
	i := newIssuer(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(i)
		began := time.Now()
		accepts := authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2"}
		now := accepts
		c.review = func(string) (authenticate.Review, error) { return now, nil }
		k := authenticate.NewKubernetes(authenticate.KubernetesOptions{
			TrustDomain: func() string { return "cluster.local" }, Audiences: []string{"istio-ca"}, Logger: slog.New(slog.DiscardHandler),
			Cluster: func(string) (string, authenticate.Cluster, error) { return "one", c, nil },
			Now:     func() time.Time { return start.Add(time.Since(began)) },
		})
		text := i.token(t, nil)
		ask := func() error {
			_, err := k.Authenticate(t.Context(), authenticate.Request{Token: text})
			synctest.Wait()
			return err
		}
		for range 3 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.reviews.Load(); n != 1 {
			t.Errorf("%d reviews", n)
		}
		now = authenticate.Review{}
		time.Sleep(5 * time.Minute)
		if err := ask(); err != nil { // and has the API server asked
			t.Error(err)
		}
		for range 3 {
			if err := ask(); err == nil || errors.Is(err, authenticate.ErrUnavailable) {
				t.Errorf("it is revoked: %v", err)
			}
		}
		now = accepts // the API server could not look up the pod for a while
		time.Sleep(11 * time.Second)
		if err := ask(); err == nil { // and has the API server asked
			t.Error("a token is accepted before the API server was asked")
		}
		if err := ask(); err != nil {
			t.Error(err)
		}
	})
}

// TestClusters takes the word of a caller for whose token it shows, where there is such a cluster.
func TestClusters(t *testing.T) {
	i := newIssuer(t, "k1")
	c := newCluster(i)
	c.review = func(string) (authenticate.Review, error) { return authenticate.Review{}, errors.New("away") }
	for name, want := range map[string]string{"": "one", "one": "one", "late": "unavailable", "two": "refused"} {
		p, err := kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil), Cluster: name})
		got := p.Bound.Cluster
		switch {
		case errors.Is(err, authenticate.ErrUnavailable):
			got = "unavailable"
		case err != nil:
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: %s, %v", name, got, err)
		}
	}
}

// TestBadTokens refuses tokens of every kind, and asks nobody about them.
func TestBadTokens(t *testing.T) {
	i, stranger := newIssuer(t, "k1"), newIssuer(t, "k1")
	unknown := newIssuer(t, "k9")
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	good := i.token(t, nil)
	split := strings.Split(good, ".")
	shared, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: x509.MarshalPKCS1PublicKey(&i.key.PublicKey)}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	confused, err := jwt.Signed(shared).Claims(claims(nil)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	twice := strings.Replace(string(must(json.Marshal(claims(nil)))), `"sub":`, `"sub":"system:serviceaccount:b:db","sub":`, 1)
	for name, text := range map[string]string{
		"three dots":             good + ".x",
		"one dot":                split[0] + "." + split[1],
		"empty parts":            "..",
		"a null payload":         ".bnVsbM.",
		"null":                   split[0] + "." + part(nil) + "." + split[2],
		"no algorithm":           part(map[string]string{"alg": "none"}) + "." + split[1] + ".",
		"the public key shared":  confused,
		"a mebibyte":             strings.Repeat("a", 1<<20) + "." + split[1] + "." + split[2],
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
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestReview asks the API server about tokens that cannot be judged here.
func TestReview(t *testing.T) {
	i := newIssuer(t, "k1")
	unbound := i.token(t, map[string]any{"kubernetes.io": nil})
	ok := authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}}
	for name, x := range map[string]struct {
		review      authenticate.Review
		err         error
		unavailable bool
		good        bool
	}{
		"good":            {review: ok, good: true},
		"not accepted":    {review: authenticate.Review{Username: ok.Username, Audiences: ok.Audiences}},
		"no name":         {review: authenticate.Review{Authenticated: true, Audiences: ok.Audiences}},
		"no audiences":    {review: authenticate.Review{Authenticated: true, Username: ok.Username}},
		"another account": {review: authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:db", Audiences: ok.Audiences}},
		"another pod":     {review: authenticate.Review{Authenticated: true, Username: ok.Username, Audiences: ok.Audiences, PodUID: "3"}},
		"does not answer": {err: errors.New("500"), unavailable: true},
		"takes for ever":  {err: context.DeadlineExceeded, unavailable: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(i)
			c.review = func(string) (authenticate.Review, error) { return x.review, x.err }
			k := kubernetes(c)
			for range 3 {
				p, err := k.Authenticate(t.Context(), authenticate.Request{Token: unbound})
				if (err == nil) != x.good || errors.Is(err, authenticate.ErrUnavailable) != x.unavailable || x.good && p.ID != web {
					t.Fatalf("%+v, %v", p, err)
				}
			}
			if want := map[bool]int64{true: 3, false: 1}[x.unavailable]; c.reviews.Load() != want {
				t.Errorf("%d reviews: want %d: answers are cached, failures are not", c.reviews.Load(), want)
			}
		})
	}
}

// TestPodIsNotKnownYet has the API server judge a token whose pod is not known.
func TestPodIsNotKnownYet(t *testing.T) {
	i := newIssuer(t, "k1")
	for _, synced := range []bool{false, true} {
		c := newCluster(i)
		c.synced, c.pods = synced, nil
		c.review = func(string) (authenticate.Review, error) {
			return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2", Node: "n2"}, nil
		}
		p, err := kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil)})
		if err != nil || p.Bound.Node != "n2" || c.reviews.Load() != 1 {
			t.Errorf("%+v, %v, %d reviews", p, err, c.reviews.Load())
		}
	}
}

// TestForgedTokensCostFewReviews floods an authenticator that does not know its cluster's keys with tokens that anybody
// could have made.
func TestForgedTokensCostFewReviews(t *testing.T) {
	i := newIssuer(t, "k1")
	c := newCluster(i)
	c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return nil, errors.New("forbidden") }, time.Now)
	k := kubernetes(c)
	split := strings.Split(i.token(t, nil), ".")
	for n := range 2000 {
		forged := split[0] + "." + split[1] + "." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "signature %d", n))
		if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: forged}); err == nil {
			t.Fatalf("%+v", p)
		}
	}
	if n := c.reviews.Load(); n > 100 {
		t.Errorf("%d reviews", n)
	}
}

// TestTokenHasOneText: whoever has a token cannot make others of it, which would each be reviewed, or be good once
// after the token was revoked.
func TestTokenHasOneText(t *testing.T) {
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
	c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return set, nil }, func() time.Time { return start })
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
}

// TestHangingClusterHoldsUpNoOther: while the API server of one cluster answers no review, however many callers wait
// for it, callers of another cluster are judged at once.
func TestHangingClusterHoldsUpNoOther(t *testing.T) {
	i := newIssuer(t, "k1")
	unbound := i.token(t, map[string]any{"kubernetes.io": nil})
	const callers = 200
	var waiting sync.WaitGroup
	waiting.Add(50) // as many as are asked about at once
	hanging, good := newCluster(i), newCluster(i)
	release := make(chan struct{})
	hanging.review = func(string) (authenticate.Review, error) {
		waiting.Done()
		<-release
		return authenticate.Review{}, errors.New("timeout")
	}
	good.review = func(string) (authenticate.Review, error) {
		return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}}, nil
	}
	k := authenticate.NewKubernetes(authenticate.KubernetesOptions{
		TrustDomain: func() string { return "cluster.local" }, Audiences: []string{"istio-ca"}, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return start },
		Cluster: func(name string) (string, authenticate.Cluster, error) {
			return name, map[string]*cluster{"hanging": hanging, "good": good}[name], nil
		},
	})
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if _, err := k.Authenticate(ctx, authenticate.Request{Token: unbound, Cluster: "hanging"}); !errors.Is(err, authenticate.ErrUnavailable) {
				t.Errorf("%v", err)
			}
		})
	}
	waiting.Wait()
	if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: unbound, Cluster: "good"}); err != nil || p.ID != web {
		t.Errorf("%+v, %v", p, err)
	}
	leave()
	close(release)
	all.Wait()
}

// TestPodGoesAfterAReview: a token that only the API server can judge is not good any more once its pod is gone, though
// it was accepted just before.
func TestPodGoesAfterAReview(t *testing.T) {
	i := newIssuer(t, "k1")
	c := newCluster(i)
	c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return nil, errors.New("forbidden") }, time.Now)
	good := authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2"}
	c.review = func(string) (authenticate.Review, error) { return good, nil }
	k := kubernetes(c)
	ask := func() error {
		_, err := k.Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil)})
		return err
	}
	for range 5 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.reviews.Load(); n != 1 {
		t.Errorf("%d reviews", n)
	}
	c.pods, good = nil, authenticate.Review{}
	if err := ask(); err == nil || errors.Is(err, authenticate.ErrUnavailable) {
		t.Errorf("the token of a pod that is gone: %v", err)
	}
}

// TestGarbage has fifty callers present ten thousand tokens that nobody should believe, of every kind, while good ones
// are presented among them. The API server is asked about none of the bad ones, and for its keys hardly ever; the good
// ones count.
func TestGarbage(t *testing.T) {
	i, stranger, unknown := newIssuer(t, "k1"), newIssuer(t, "k1"), newIssuer(t, "k9")
	c := newCluster(i)
	var fetches atomic.Int64
	c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) {
		fetches.Add(1)
		return i.jwks(), nil
	}, func() time.Time { return start })
	good := i.token(t, nil)
	var askedOf sync.Map
	c.review = func(token string) (authenticate.Review, error) {
		askedOf.Store(token, true)
		return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2"}, nil
	}
	k := kubernetes(c)
	split := strings.Split(good, ".")
	bad := []string{
		stranger.token(t, nil), unknown.token(t, nil), i.token(t, map[string]any{"exp": start.Add(-time.Hour).Unix()}), i.token(t, map[string]any{"aud": "vault"}),
		i.token(t, map[string]any{"iss": "https://elsewhere"}), split[0] + "." + split[1] + ".", ".bnVsbM.", "garbage", strings.Repeat("a.", 100),
	}
	var wg sync.WaitGroup
	for caller := range 50 {
		wg.Go(func() {
			for n := range 200 {
				text := bad[(caller+n)%len(bad)]
				if n%2 == 0 { // one that was never seen
					text = split[0] + "." + split[1] + "." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d of %d", n, caller))
				}
				if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: text}); err == nil || errors.Is(err, authenticate.ErrUnavailable) {
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
}

// TestKeysRotate follows an issuer that changes its key, and one that cannot be reached.
func TestKeysRotate(t *testing.T) {
	old, young := newIssuer(t, "k1"), newIssuer(t, "k2")
	now, current, fail, fetches := start, old, false, 0
	s := authenticate.NewKeySet(func(context.Context) ([]byte, error) {
		if fetches++; fail {
			return nil, errors.New("unreachable")
		}
		return current.jwks(), nil
	}, func() time.Time { return now })
	knows := func(id string) bool {
		k, err := s.Key(t.Context(), id)
		return err == nil && k != nil
	}
	if !knows("k1") || knows("k2") || fetches != 1 {
		t.Fatalf("%d fetches", fetches)
	}
	current = young
	if now = now.Add(59 * time.Second); knows("k2") || fetches != 1 {
		t.Error("fetched again within a minute")
	}
	if now = now.Add(time.Second); !knows("k2") || knows("k1") || fetches != 2 {
		t.Errorf("%d fetches", fetches)
	}
	fail = true
	if now = now.Add(23 * time.Hour); !knows("k2") {
		t.Error("the last good keys are gone")
	}
	now = now.Add(2 * time.Hour)
	if k, err := s.Key(t.Context(), "k2"); err == nil || k != nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("keys are too old and still good, or nobody learns why there are none: %v", err)
	}
}

// TestOIDC accepts tokens of another provider by its rule alone.
func TestOIDC(t *testing.T) {
	i := newIssuer(t, "k1")
	rule, err := authenticate.ParseRule(`{"issuer":"https://idp","jwks_uri":"https://idp/keys","audiences":["mesh"]}`)
	if err != nil {
		t.Fatal(err)
	}
	o := authenticate.OIDC{
		Rule: rule, TrustDomain: func() string { return "cluster.local" }, Now: func() time.Time { return start },
		Keys: authenticate.NewKeySet(func(context.Context) ([]byte, error) { return i.jwks(), nil }, func() time.Time { return start }),
	}
	if p, err := o.Authenticate(t.Context(), authenticate.Request{Token: i.token(t, map[string]any{"iss": "https://idp", "aud": "mesh"})}); err != nil || p.ID != web {
		t.Errorf("%+v, %v", p, err)
	}
	for _, changes := range []map[string]any{{"iss": "https://idp"}, {"aud": "mesh"}, {"iss": "https://idp", "aud": "mesh", "sub": "alice"}} {
		if p, err := o.Authenticate(t.Context(), authenticate.Request{Token: i.token(t, changes)}); err == nil {
			t.Errorf("%v: %+v", changes, p)
		}
	}
	for _, text := range []string{"", "{", `{"issuer":"x"}`, `{"issuer":"x","jwks_uri":"y","audiences":[]}`} {
		if r, err := authenticate.ParseRule(text); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// TestCertificates judges client certificates by what is in them.
func TestCertificates(t *testing.T) {
	now := start
	c := authenticate.Certificates{Trusts: func(td string) bool { return td == "cluster.local" }, Now: func() time.Time { return now }}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_ = key
	for text, good := range map[string]bool{
		"spiffe://cluster.local/ns/a/sa/web":                                     true,
		"spiffe://other/ns/a/sa/web":                                             false,
		"spiffe://Cluster.local/ns/a/sa/web":                                     false,
		"spiffe://cluster.local/ns/a/sa/../sa/web":                               false,
		"spiffe://cluster.local/ns/a%2fb/sa/web":                                 false,
		"https://cluster.local/ns/a/sa/web":                                      false,
		"spiffe://cluster.local/ns/a/sa/web spiffe://cluster.local/ns/a/sa/web2": false,
		"": false,
	} {
		leaf := &x509.Certificate{NotAfter: start}
		for f := range strings.FieldsSeq(text) {
			leaf.URIs = append(leaf.URIs, must(url.Parse(f)))
		}
		p, err := c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}})
		if (err == nil) != good || good && (p.ID != web || p.Proof != identity.Certificate || !p.Expires.Equal(start)) {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
		_, err = c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}})
		if !errors.Is(err, authenticate.ErrNoCredential) {
			t.Errorf("%q, not verified: %v", text, err)
		}
	}
	leaf := &x509.Certificate{NotAfter: start, URIs: []*url.URL{must(url.Parse("spiffe://cluster.local/ns/a/sa/web"))}}
	now = start.Add(time.Second)
	if p, err := c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}); err == nil {
		t.Errorf("a connection is older than its certificate: %+v", p)
	}
}

// TestForwarded believes a header from the named ranges alone.
func TestForwarded(t *testing.T) {
	f := authenticate.Forwarded{Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Trusts: func(td string) bool { return td == "cluster.local" }, Now: time.Now}
	in, out := netip.MustParseAddrPort("10.1.2.3:4"), netip.MustParseAddrPort("127.0.0.1:4")
	const uri = "URI=spiffe://cluster.local/ns/a/sa/web"
	for _, c := range []struct {
		from   netip.AddrPort
		header string
		good   bool
	}{
		{in, uri, true},
		{in, `By=spiffe://cluster.local/ns/g/sa/gw;Hash=12;Subject="CN=a,O=\"b;c\"";` + uri, true},
		{netip.MustParseAddrPort("[::ffff:10.1.2.3]:4"), uri, true},
		{out, uri, false},
		{netip.AddrPort{}, uri, false},
		{in, "", false},
		{in, uri + "," + uri, false},
		{in, uri + ";" + uri, false},
		{in, "By=x," + uri, false},
		{in, `Subject="` + uri, false},
		{in, "URI=spiffe://other/ns/a/sa/web", false},
		{in, "URI", false},
		{in, strings.Repeat("a=b;", 10000) + uri, false},
	} {
		p, err := f.Authenticate(t.Context(), authenticate.Request{Address: c.from, TLS: &tls.ConnectionState{}, Forwarded: c.header})
		if (err == nil) != c.good || c.good && p.ID != web {
			t.Errorf("%s, %.60q: %+v, %v", c.from, c.header, p, err)
		}
		if _, err := f.Authenticate(t.Context(), authenticate.Request{Address: c.from, Forwarded: c.header}); !errors.Is(err, authenticate.ErrNoCredential) {
			t.Errorf("over plaintext: %v", err)
		}
	}
}

// TestForwardedByFederatedRoots: a forwarded certificate may be of any root that counts for its trust domain.
func TestForwardedByFederatedRoots(t *testing.T) {
	f := authenticate.Forwarded{
		Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Trusts: func(string) bool { return true }, Now: time.Now,
		Federated: func(td string) bool { return td == "alias" },
	}
	for td, want := range map[string]bool{"alias": true, "cluster.local": false} {
		p, err := f.Authenticate(t.Context(), authenticate.Request{
			Address: netip.MustParseAddrPort("10.1.2.3:4"), TLS: &tls.ConnectionState{}, Forwarded: "URI=spiffe://" + td + "/ns/a/sa/web",
		})
		if err != nil || p.Federated != want {
			t.Errorf("%s: %+v, %v", td, p, err)
		}
	}
}

// fixed is an Authenticator with one answer.
type fixed struct {
	peer identity.Peer
	err  error
}

func (f fixed) Authenticate(context.Context, authenticate.Request) (identity.Peer, error) {
	return f.peer, f.err
}

// TestList takes the first authenticator that succeeds, and says if one could not be asked.
func TestList(t *testing.T) {
	none, wrong, away := fixed{err: authenticate.ErrNoCredential}, fixed{err: errors.New("wrong")}, fixed{err: authenticate.ErrUnavailable}
	good := fixed{peer: identity.Peer{ID: web, Proof: identity.Token}}
	nobody := fixed{peer: identity.Peer{Proof: identity.Token}}
	for _, c := range []struct {
		list        authenticate.List
		good        bool
		none, retry bool
	}{
		{nil, false, true, false},
		{authenticate.List{none, none}, false, true, false},
		{authenticate.List{none, wrong}, false, false, false},
		{authenticate.List{away, wrong}, false, false, true},
		{authenticate.List{wrong, away, good}, true, false, false},
		{authenticate.List{nobody}, false, false, false},
	} {
		at := netip.MustParseAddrPort("10.0.0.1:1")
		p, err := c.list.Authenticate(t.Context(), authenticate.Request{Address: at})
		if (err == nil) != c.good || p.Proved() != c.good || p.Address != at || errors.Is(err, authenticate.ErrNoCredential) != c.none || errors.Is(err, authenticate.ErrUnavailable) != c.retry {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
}

// FuzzToken authenticates by any text.
func FuzzToken(f *testing.F) {
	i := newIssuer(f, "k1")
	f.Add(i.token(f, nil))
	f.Add(".bnVsbM.")
	good := i.token(f, nil)
	k := kubernetes(newCluster(i))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := k.Authenticate(t.Context(), authenticate.Request{Token: text})
		if err == nil && (text[:strings.LastIndex(text, ".")] != good[:strings.LastIndex(good, ".")] || p.ID != web) {
			t.Errorf("%q is %+v", text, p)
		}
	})
}
