package upstream

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestBrokenRoots checks that a file with a broken root is an error at the start, and later leaves the last roots in
// use.
func TestBrokenRoots(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	whole := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	broken := append(bytes.TrimSpace(bytes.Clone(whole)), whole...)
	file := filepath.Join(t.TempDir(), "roots.pem")
	newClient := func() *perHandshake {
		return &perHandshake{&Options{Roots: file, ServerName: "example.com", Log: slog.New(slog.DiscardHandler)},
			&atomic.Pointer[x509.CertPool]{}}
	}
	client := newClient()
	for i, step := range []struct {
		client *perHandshake
		roots  []byte
		want   string
	}{{client, whole, ""}, {client, broken, ""}, {newClient(), broken, "PEM block 1 cannot be read"}, {newClient(), nil, "no certificate"}} {
		must.Succeed(t, os.WriteFile(file, step.roots, 0o600))
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		must.Succeed(t, err)
		_, _, err = step.client.Clone().ClientHandshake(t.Context(), "", conn)
		_ = conn.Close()
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("step %d: %v, want %q", i, err, step.want)
		}
	}
}
