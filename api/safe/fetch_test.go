package safe_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestFetchByNoProxy: the address that is checked is the one of the URL, so no proxy stands between.
func TestFetchByNoProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("keys")) }))
	defer server.Close()
	f := safe.NewFetcher(safe.FetchOptions{
		Size: 100, Timeout: 10 * time.Second, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: func(r *http.Request) (*url.URL, error) {
			t.Errorf("a proxy is asked for %s", r.URL)
			return nil, nil
		}},
	})
	if got, err := f.Get(t.Context(), server.URL); err != nil || string(got) != "keys" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFetchByProxy: a proxy of the environment is asked, also one of this host, and never for an address that may not
// be fetched from.
func TestFetchByProxy(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secure keys")) }))
	defer secure.Close()
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.RequestURI)
		switch {
		case r.Method == http.MethodConnect:
			to, err := net.Dial("tcp", secure.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			from, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			_, _ = io.Copy(from, to)
			_ = from.Close()
		case strings.HasSuffix(r.URL.Path, "/metadata"):
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		default:
			_, _ = w.Write([]byte("keys"))
		}
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	must.Succeed(t, err)
	transport, _ := secure.Client().Transport.(*http.Transport)
	transport = transport.Clone()
	transport.TLSClientConfig.ServerName = "example.com"
	options := safe.FetchOptions{
		Size: 100, Timeout: 10 * time.Second, Redirects: 2, Transport: transport,
		Proxy: func(u *url.URL) (*url.URL, error) {
			if u.Hostname() == "direct.invalid" {
				return nil, nil
			}
			return at, nil
		},
	}
	blocking := options
	blocking.Block = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	broken := options
	broken.Proxy = func(*url.URL) (*url.URL, error) { return nil, errors.New("http://user:word@proxy") }
	for _, c := range []struct {
		options          safe.FetchOptions
		url, want, asked string
	}{
		{options, "http://keys.invalid/a", "keys", "GET http://keys.invalid/a"},
		{options, "http://192.0.2.7/a", "keys", "GET http://192.0.2.7/a"},
		{options, "https://keys.invalid/a", "secure keys", "CONNECT keys.invalid:443"},
		{options, "http://keys.invalid/metadata", "error: 169.254.169.254 may not", "GET http://keys.invalid/metadata"},
		{options, "http://127.0.0.1/a", "error: 127.0.0.1 may not", ""},
		{options, "http://localhost/a", "may not be fetched", ""},
		{options, "http://[fd00:ec2::254]/a", "may not be fetched", ""},
		{options, "http://direct.invalid/a", "error: ", ""},
		{blocking, "http://192.0.2.7/a", "it is blocked", ""},
		{blocking, "http://keys.invalid/a", "addresses are blocked", ""},
		{blocking, "http://198.51.100.7/a", "keys", "GET http://198.51.100.7/a"},
		{broken, "http://keys.invalid/a", "error: the proxy of the environment has no URL", ""},
	} {
		asked.Store("")
		got, err := safe.NewFetcher(c.options).Get(t.Context(), c.url)
		text := string(got)
		if err != nil {
			text = "error: " + err.Error()
		}
		if !strings.Contains(text, c.want) || strings.Contains(text, "word") || asked.Load() != c.asked {
			t.Errorf("%s: %q, and the proxy is asked for %q, want %q and %q", c.url, text, asked.Load(), c.want, c.asked)
		}
	}
}

// TestFetchKeepsTLS: a redirect from https leads to https alone.
func TestFetchKeepsTLS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("keys of anybody")) }))
	defer plain.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("keys")) })
	mux.Handle("/stay", http.RedirectHandler("/ok", http.StatusFound))
	mux.Handle("/leave", http.RedirectHandler(plain.URL, http.StatusFound))
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	transport, _ := secure.Client().Transport.(*http.Transport)
	f := safe.NewFetcher(safe.FetchOptions{
		Size: 100, Timeout: 10 * time.Second, Redirects: 2, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Transport: transport,
	})
	if got, err := f.Get(t.Context(), secure.URL+"/stay"); err != nil || string(got) != "keys" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := f.Get(t.Context(), secure.URL+"/leave"); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFetch fetches from a host that is allowed, and from nowhere that it should not.
func TestFetch(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("keys")) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 101)) })
	mux.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "do not tell", http.StatusForbidden) })
	mux.Handle("/once", http.RedirectHandler("/ok", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/metadata", http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	mux.Handle("/file", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	here := netip.MustParsePrefix("127.0.0.1/32")
	options := safe.FetchOptions{Size: 100, Timeout: 10 * time.Second, Redirects: 2, Allow: []netip.Prefix{here}}
	f := safe.NewFetcher(options)
	for path, want := range map[string]string{"/ok": "keys", "/once": "keys"} {
		if got, err := f.Get(t.Context(), server.URL+path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	brief := options
	brief.Timeout = 50 * time.Millisecond
	if _, err := safe.NewFetcher(brief).Get(t.Context(), server.URL+"/slow"); err == nil {
		t.Error("a response that never comes")
	}
	for _, at := range []string{
		server.URL + "/long", server.URL + "/secret", server.URL + "/loop", server.URL + "/metadata", server.URL + "/file",
		"file:///etc/passwd", "http://", "ftp://example.com/", "http://user:word@127.0.0.1/", "%",
	} {
		if got, err := f.Get(t.Context(), at); err == nil || strings.Contains(err.Error(), "do not tell") {
			t.Errorf("%s: %q, %v", at, got, err)
		}
	}
	if got, err := f.Get(t.Context(), strings.Replace(server.URL, "://", "://user:word@", 1)+"/ok"); err == nil {
		t.Errorf("a URL with a user: %q", got)
	}
	options.Allow, options.Block = nil, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	f = safe.NewFetcher(options)
	if _, err := f.Get(t.Context(), "http://192.0.2.1/"); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("a blocked address: %v", err)
	}
	addresses, err := net.InterfaceAddrs()
	must.Succeed(t, err)
	for _, a := range addresses {
		own := netip.MustParsePrefix(a.String()).Addr()
		_, err := f.Get(t.Context(), "http://"+netip.AddrPortFrom(own, 1).String()+"/")
		if err == nil || !strings.Contains(err.Error(), "may not be fetched") {
			t.Errorf("%s, which is this host's: %v", own, err)
		}
	}
	for _, host := range []string{"100.100.100.200", "192.0.0.192", "168.63.129.16", "[fd20:ce::254]", "[fd00:ec2::254]"} {
		_, err := f.Get(t.Context(), "http://"+host+"/")
		if err == nil || !strings.Contains(err.Error(), "may not be fetched") && !strings.Contains(err.Error(), "address family") {
			t.Errorf("%s, which is a metadata service's: %v", host, err)
		}
	}
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]",
		"0.0.0.0", "2130706433", "169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "224.0.0.1"} {
		if got, err := f.Get(t.Context(), "http://"+host+port+"/ok"); err == nil {
			t.Errorf("%s: %q", host, got)
		}
	}
}
