package crd

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters:
- name: k
  cluster: {server: "https://example.com:6443", CLUSTER}
users:
- name: u
  user: {USER}
contexts:
- name: c
  context: {cluster: k, user: u}
- name: d
  context: {cluster: k, user: u, namespace: x}
current-context: c
`

func withFields(cluster, user string) []byte {
	return []byte(strings.NewReplacer("CLUSTER", cluster, "USER", user).Replace(kubeconfig))
}

const someCA = "certificate-authority-data: YQ=="

func TestRemoteKubeconfigs(t *testing.T) {
	for name, c := range map[string]struct{ cluster, user, entry, field, option string }{
		"token": {someCA, "token: t", "", "", ""},
		"exec": {
			someCA, "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./steal, interactiveMode: Never}", `user "u"`, "exec", "exec",
		},
		"auth provider":      {someCA, "auth-provider: {name: x}", `user "u"`, "auth-provider", "authProvider"},
		"token file":         {someCA, "tokenFile: /etc/passwd", `user "u"`, "tokenFile", "tokenFile"},
		"client certificate": {someCA, "client-certificate: /etc/x", `user "u"`, "client-certificate", "clientCertificate"},
		"client key":         {someCA, "client-key: /etc/x", `user "u"`, "client-key", "clientKey"},
		"CA file":            {"certificate-authority: /etc/x", "token: t", `cluster "k"`, "certificate-authority", "certificateAuthority"},
		"unverified":         {"insecure-skip-tls-verify: true", "token: t", `cluster "k"`, "insecure-skip-tls-verify", "insecureSkipTLSVerify"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Remote(withFields(c.cluster, c.user), ClientOptions{})
			if c.option == "" {
				must.Succeed(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.entry+" has "+c.field) || !strings.Contains(err.Error(), c.option) {
				t.Errorf("got %v", err)
			}
			if err := refuseOf(c.cluster, c.user, c.option); err != nil {
				t.Errorf("although it is allowed: %v", err)
			}
			if refuseOf(c.cluster, c.user, "other") == nil {
				t.Error("allowed by another option")
			}
		})
	}
	if _, err := Remote([]byte(strings.Replace(string(withFields(someCA, "token: t")), "https:", "http:", 1)), ClientOptions{}); err == nil {
		t.Error("a token may go out in plain text")
	}
	if _, err := Remote([]byte("{"), ClientOptions{}); err == nil {
		t.Error("broken text is taken")
	}
	if _, err := Remote(nil, ClientOptions{}); err == nil {
		t.Error("empty text is taken")
	}
}

// refuseOf is the error of Remote if an option is allowed; what comes after it needs files that are not there.
func refuseOf(cluster, user, option string) error {
	_, err := Remote(withFields(cluster, user), ClientOptions{Insecure: []string{option}})
	if err != nil && strings.Contains(err.Error(), "refused") {
		return err
	}
	return nil
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	write := func(path, text string) string {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write(path, string(withFields(someCA, "token: t")))
	c, err := Config(ClientOptions{Kubeconfig: path, Version: "1.2", QPS: 5})
	must.Succeed(t, err)
	if c.Host != "https://example.com:6443" || c.BearerToken != "t" || c.UserAgent != "pilot-discovery/1.2" || c.QPS != 5 ||
		c.Burst != DefaultBurst || !strings.Contains(c.AcceptContentTypes, "protobuf") {
		t.Errorf("%+v", c)
	}
	if _, err := Config(ClientOptions{Kubeconfig: filepath.Join(dir, "none")}); err == nil {
		t.Error("a file that is not there")
	}
	if _, err := Config(ClientOptions{Kubeconfig: path, Context: "none"}); err == nil {
		t.Error("a context that is not there")
	}

	if _, err := Config(ClientOptions{}); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("outside of a cluster: %v", err)
	}
	in := ClientOptions{Host: "2001:db8::1", Port: "443", TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca")}
	if _, err := Config(in); err == nil {
		t.Error("a pod without a ServiceAccount")
	}
	write(in.TokenFile, "t")
	write(in.CAFile, "ca")
	if c, err = Config(in); err != nil || c.Host != "https://[2001:db8::1]:443" || c.BearerTokenFile != in.TokenFile ||
		c.CAFile != in.CAFile || c.QPS != DefaultQPS {
		t.Errorf("%+v, %v", c, err)
	}
}

type answers func() int

func (f answers) RoundTrip(*http.Request) (*http.Response, error) {
	if status := f(); status != 0 {
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}
	return nil, io.ErrUnexpectedEOF
}

// A server in trouble is asked at most so often; one in health, as often as one likes.
func TestRetriesAreLimited(t *testing.T) {
	for name, bad := range map[string]int{"too many requests": 429, "internal error": 500, "unavailable": 503, "connection lost": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				status := 200
				b := &brake{next: answers(func() int { return status }), limit: rate.NewLimiter(brakeRate, brakeBurst)}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com", nil)
				must.Succeed(t, err)
				ask := func(n int) time.Duration {
					start := time.Now()
					for range n {
						if resp, err := b.RoundTrip(r); err == nil {
							_ = resp.Body.Close()
						}
					}
					return time.Since(start)
				}
				if d := ask(1000); d != 0 {
					t.Errorf("slowed down by %v", d)
				}
				status = bad
				if d := ask(100); d < 97*time.Second/brakeRate {
					t.Errorf("100 requests in %v", d)
				}
				status = 404 // an answer like any other
				if d := ask(50); d < 48*time.Second/brakeRate {
					t.Errorf("released at once: %v", d)
				}
				time.Sleep(brakeHold)
				if d := ask(1000); d != 0 {
					t.Errorf("slowed down by %v", d)
				}
				status = bad
				ask(5)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				start := time.Now()
				if resp, err := b.RoundTrip(r.WithContext(ctx)); err == nil {
					_ = resp.Body.Close()
					t.Error("a request that nobody waits for is made")
				}
				if d := time.Since(start); d > time.Millisecond {
					t.Errorf("waits %v beyond its context", d)
				}
			})
		})
	}
}

// An API server sends nobody elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	asked := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer server.Close()
	c, err := newHTTP(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	must.Succeed(t, err)
	answer, err := c.Do(r)
	must.Succeed(t, err)
	_ = answer.Body.Close()
	if asked || answer.StatusCode != http.StatusFound {
		t.Errorf("the answer is %s, and the other server was asked: %v", answer.Status, asked)
	}
}
