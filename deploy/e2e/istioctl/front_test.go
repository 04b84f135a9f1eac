//go:build compat

package istioctl

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// front serves an API server, and forwards ports of pods as its kubelets would: to an address for each pod and port. It
// returns a kubeconfig.
func front(t *testing.T, to cluster.Access, ports map[string]string) string {
	t.Helper()
	target, err := url.Parse(to.Server)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(to.CA)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+to.Token) // clients send no token over plaintext
		},
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		FlushInterval: -1,
	}
	forwards := regexp.MustCompile(`/pods/([^/]+)/portforward$`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := forwards.FindStringSubmatch(r.URL.Path)
		if m == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		if !strings.EqualFold(r.Header.Get("Upgrade"), "SPDY/3.1") {
			http.Error(w, "only SPDY is forwarded", http.StatusForbidden)
			return
		}
		forward(w, r, func(port string) string { return ports[m[1]+":"+port] })
	}))
	t.Cleanup(s.CloseClientConnections)
	text, err := cluster.Access{Server: s.URL, Token: "none"}.Kubeconfig()
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	return path
}

// forward is the kubelet's side of portforward.k8s.io.
func forward(w http.ResponseWriter, r *http.Request, address func(port string) string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		if s.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
			return nil
		}
		go func() {
			defer func() { _ = s.Close() }()
			c, err := net.Dial("tcp", address(s.Headers().Get(corev1.PortHeader)))
			if err != nil {
				_ = s.Reset()
				return
			}
			defer func() { _ = c.Close() }()
			go func() {
				_, _ = io.Copy(c, s)
				_ = c.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(s, c)
		}()
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}
