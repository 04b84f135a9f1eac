package keysets_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/keysets"
)

// fetch is a jwks.Fetcher that returns the same for every URL.
type fetch func() ([]byte, error)

func (f fetch) Get(context.Context, string) ([]byte, error) { return f() }

// keySet returns a set that contains a private key, and its public form as proxies get it.
func keySet(t *testing.T, id string) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	set := func(k any) string {
		b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k, KeyID: id}}})
		must.Succeed(t, err)
		return string(b)
	}
	return set(key), set(&key.PublicKey)
}

// TestHostileServers fetches public keys from good and hostile servers. A fetch from a hostile server ends in time,
// without keys, and its error has no part of the response.
func TestHostileServers(t *testing.T) {
	private, public := keySet(t, "a")
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	text := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
	}
	redirect := func(path, to string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) })
	}
	text("/keys", private)
	text("/good/.well-known/openid-configuration", `{"jwks_uri": "`+server.URL+`/keys"}`)
	text("/nowhere/.well-known/openid-configuration", `{"issuer": "top secret"}`)
	text("/none/.well-known/openid-configuration", `top secret`)
	text("/metadata/.well-known/openid-configuration", `{"jwks_uri": "http://169.254.169.254/top/secret"}`)
	text("/file/.well-known/openid-configuration", `{"jwks_uri": "file:///top/secret"}`)
	text("/text", "top secret")
	text("/many", `{"keys":[`+strings.Repeat(`{"kty":"EC"},`, 10_000)+`{"kty":"top secret"}]}`)
	text("/weak", `{"keys":[{"kty":"RSA","kid":"top secret","e":"AQAB",`+
		`"n":"zyzUIUrqTQWlXzTzRBYzOgK5cTwEGCkWbUqVbpUR8Ky3gwGwzBuxZSO2kl3aUgVxqMIgNAmDfvRVtWlaqAzZPw"}]}`)
	text("/shared", `{"keys":[{"kty":"oct","k":"dG9wIHNlY3JldA"}]}`)
	redirect("/redirected", "/keys")
	redirect("/loop", "/loop")
	redirect("/linklocal", "http://169.254.169.254/top/secret")
	redirect("/loopback", "http://[::1]:1/top/secret")
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(strings.Repeat("top secret", 1000))); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"keys": [`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "top secret", http.StatusInternalServerError)
	})

	fetcher := safe.NewFetcher(safe.FetchOptions{
		Size: limits.Default().KeySet, Timeout: jwks.MaxTimeout, Redirects: limits.Default().KeySetRedirects,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	good := map[jwks.Remote]bool{{URI: server.URL + "/keys"}: true, {URI: server.URL + "/redirected"}: true,
		{Issuer: server.URL + "/good/"}: true}
	sources := []jwks.Remote{{URI: server.URL + "/slow", Timeout: 50 * time.Millisecond}, {Issuer: "me@example.com"},
		{URI: "http://127.0.0.2:1/"}, {URI: "://"}}
	for s := range good {
		sources = append(sources, s)
	}
	for _, path := range []string{"/text", "/many", "/weak", "/shared", "/loop", "/linklocal", "/loopback", "/endless", "/broken",
		"/nothing"} {
		sources = append(sources, jwks.Remote{URI: server.URL + path})
	}
	for _, path := range []string{"/nowhere", "/none", "/metadata", "/file", "/nothing"} {
		sources = append(sources, jwks.Remote{Issuer: server.URL + path})
	}
	metrics := prometheus.NewRegistry()
	k := keysets.New(keysets.Options{Handler: func([]kinds.Change) {}, Logger: slog.New(slog.DiscardHandler), Metrics: metrics,
		Fetcher: fetcher})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	names := make([]string, 0, len(sources))
	for _, s := range sources {
		names = append(names, s.Name())
	}
	k.Want(facts.Needs(names...))
	got := map[string]string{}
	for _, c := range k.Wait(time.Minute) {
		got[c.Name] = *c.Object.Spec.(*string)
	}
	failing := k.Failing()
	for _, s := range sources {
		why, fails := failing[s.Name()]
		if set := got[s.Name()]; good[s] && (set != public || fails) || !good[s] && (set != "" || why.Why == "" || why.Since.IsZero()) {
			t.Errorf("%s: %q, %v", s.Name(), set, why)
		}
		if strings.Contains(why.Why, "top secret") || strings.Contains(why.Why, "top/secret") {
			t.Errorf("%s: the error has a part of the answer: %s", s.Name(), why.Why)
		}
	}
	if n := testutil.CollectAndCount(metrics, "pilot_jwks_resolver_network_fetch_success_total"); n != 1 {
		t.Errorf("%d counters of what was fetched", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestKeysOverTime checks that a rotated key is available after a refresh, and a missing one soon after its server is
// back. While a server is away, its last good keys stay in force for a week.
func TestKeysOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the variables of the fetcher and the handler
		body, asked := "", 0
		var told []string
		set := func(text string) { mu.Lock(); defer mu.Unlock(); body = text }
		source := jwks.Remote{URI: "https://a/keys"}
		k := keysets.New(keysets.Options{
			Handler: func(list []kinds.Change) {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range list {
					text := "gone"
					if c.Object != nil {
						text = *c.Object.Spec.(*string)
					}
					told = append(told, text)
				}
			},
			Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
			Fetcher: fetch(func() ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if asked++; body == "" {
					return nil, errors.New("no route")
				}
				return []byte(body), nil
			}),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		want := func(after time.Duration, n int, last string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(told) != n || n > 0 && told[n-1] != last {
				t.Errorf("told %d times, last %q; want %d, %s", len(told), told, n, last)
			}
		}
		first, firstPublic := keySet(t, "1")
		second, secondPublic := keySet(t, "2")
		k.Want(facts.Needs(source.Name()))
		want(time.Hour, 0, "")
		times := func() int { mu.Lock(); defer mu.Unlock(); return asked }
		if n := times(); n < 60 || n > 70 {
			t.Errorf("asked %d times in an hour without an answer", n)
		}
		set(first)
		want(time.Minute+time.Second, 1, firstPublic)
		set(second)
		want(20*time.Minute, 2, secondPublic)
		set("")
		want(6*24*time.Hour, 2, secondPublic)
		want(2*24*time.Hour, 3, "gone")
		set(second)
		want(time.Minute+time.Second, 4, secondPublic)

		// A key set that comes and goes is reported each time, and fetched once.
		before := times()
		for i := range 10 {
			k.Want(nil)
			k.Want(facts.Needs(source.Name()))
			want(time.Second, 5+i, secondPublic)
		}
		if n := times(); n != before {
			t.Errorf("asked %d times more for one that came and went", n-before)
		}
		k.Want(nil)
		want(2*time.Minute, 14, secondPublic)
		k.Want(facts.Needs(source.Name()))
		if want(time.Second, 15, secondPublic); times() != before+1 {
			t.Errorf("asked %d times more for one that comes back late", times()-before)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestBounds checks that the policies of one namespace may need a limited number of key sets, with a limited size of
// public keys. The size of the responses does not matter.
func TestBounds(t *testing.T) {
	t.Parallel()
	private, public := keySet(t, "key")
	bounds := limits.Default()
	bounds.KeySets, bounds.KeySetBytes = 3, 2*len(public)
	k := keysets.New(keysets.Options{
		Handler: func([]kinds.Change) {}, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Limits: bounds,
		Fetcher: fetch(func() ([]byte, error) { return []byte(private + strings.Repeat(" ", 1<<16)), nil }),
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	need := func(uri, namespace string) facts.Need {
		return facts.Need{Name: jwks.Remote{URI: "https://" + uri}.Name(), Namespaces: []string{namespace}}
	}
	k.Want([]facts.Need{need("a", "n"), need("b", "n"), need("c", "n"), need("d", "n"), need("e", "m")})
	there := k.Wait(time.Minute)
	failing := k.Failing()
	var why []string
	for _, f := range failing {
		why = append(why, f.Why)
	}
	slices.Sort(why)
	if len(there) != 3 || len(failing) != 2 ||
		why[0] != "namespace n needs more than 3 of them" || !strings.Contains(why[1], "namespace n needs have more than") {
		t.Errorf("there are %d, and %q fail", len(there), why)
	}
	if _, fails := failing[need("e", "m").Name]; fails {
		t.Error("another namespace's keys are missing")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
