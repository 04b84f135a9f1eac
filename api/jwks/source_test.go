package jwks_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/jwks"
)

// TestSource: a name holds all that it takes to fetch, and times are bounded.
func TestSource(t *testing.T) {
	for _, s := range []jwks.Remote{{URI: "https://a/b c"}, {Issuer: "https://a"}, {Issuer: "me@example.com", Timeout: time.Hour}} {
		got, err := jwks.ParseSource(s.Name())
		want := min(max(s.Timeout, jwks.DefaultTimeout), jwks.MaxTimeout)
		if err != nil || got.URI != s.URI || got.Issuer != s.Issuer || got.Timeout != want {
			t.Errorf("%+v, want %+v: %v", got, s, err)
		}
	}
	for _, name := range []string{"", "https://a", "5s", "5s jwks", "5s jwks ", "5s x y", "-5s jwks x", "x jwks y", "1h jwks x"} {
		if s, err := jwks.ParseSource(name); err == nil {
			t.Errorf("%q: %+v", name, s)
		}
	}
	for issuer, want := range map[string]string{"https://a/b/": "https://a/b/.well-known/openid-configuration",
		"http://a": "http://a/.well-known/openid-configuration", "me@example.com": "", "https://": ""} {
		if got, err := (jwks.Remote{Issuer: issuer}).Discovery(); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", issuer, got, err)
		}
	}
}

// documents is a Fetcher that has a document for each URL.
type documents map[string]string

func (d documents) Get(_ context.Context, url string) ([]byte, error) { return []byte(d[url]), nil }

// TestDiscoveryKeepsTLS: a document that came by TLS names keys that come by TLS.
func TestDiscoveryKeepsTLS(t *testing.T) {
	for _, c := range []struct {
		issuer, uri string
		good        bool
	}{
		{"https://idp.example", "https://keys.example/k", true},
		{"https://idp.example", "http://keys.example/k", false},
		{"https://idp.example", "file:///k", false},
		{"http://idp.example", "http://keys.example/k", true},
		{"http://idp.example", "https://keys.example/k", true},
	} {
		document, _ := json.Marshal(map[string]string{"jwks_uri": c.uri})
		set, err := jwks.Remote{Issuer: c.issuer}.Fetch(t.Context(),
			documents{c.issuer + "/.well-known/openid-configuration": string(document), c.uri: jwks.AcceptsNone})
		if (err == nil) != c.good || c.good && set.Key("nobody") == nil {
			t.Errorf("%s names %s: %v", c.issuer, c.uri, err)
		}
	}
}

// FuzzDiscovery shows that no answer of an issuer makes a panic, or a URI of nothing.
func FuzzDiscovery(f *testing.F) {
	f.Add([]byte(`{"jwks_uri": "https://a/keys"}`))
	f.Add([]byte(`{"jwks_uri": null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if uri, err := jwks.ParseDiscovery(body); (uri == "") != (err != nil) {
			t.Errorf("%q, %v", uri, err)
		}
	})
}
