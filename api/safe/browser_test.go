package safe_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

func TestNotRebound(t *testing.T) {
	for host, want := range map[string]bool{
		"": true, "localhost": true, "LOCALHOST:15004": true, "127.0.0.1": true, "127.0.0.1:1": true, "[::1]": true, "[::1]:1": true,
		"10.0.0.1:15014": true,
		"evil.example":   false, "evil.example:15004": false, "localhost.evil.example:1": false, "127.0.0.1.evil.example": false,
		"localhost.:1": false, "2130706433": false,
	} {
		if got := safe.NotRebound(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestCrossOrigin(t *testing.T) {
	for name, c := range map[string]struct {
		header, value string
		want          bool
	}{
		"no browser":            {},
		"typed":                 {"Sec-Fetch-Site", "none", false},
		"the same origin":       {"Sec-Fetch-Site", "same-origin", false},
		"another site":          {"Sec-Fetch-Site", "cross-site", true},
		"another port":          {"Sec-Fetch-Site", "same-site", true},
		"an old browser":        {"Origin", "http://evil.example", true},
		"an old browser's own":  {"Origin", "http://localhost:15014", false},
		"a page without origin": {"Origin", "null", true},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := httptest.NewRequest(method, "http://localhost:15014/debug/adsz", nil)
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			if got := safe.CrossOrigin(r); got != c.want || r.Method != method {
				t.Errorf("%s, %s: %v", name, method, got)
			}
		}
	}
}
