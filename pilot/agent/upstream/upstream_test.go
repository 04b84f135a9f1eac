package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestClientCertificate checks that an expired client certificate is not shown. The control plane would close the
// connection because of it, although the token is enough.
func TestClientCertificate(t *testing.T) {
	for name, c := range map[string]struct {
		end   time.Duration
		plain bool
		want  bool
	}{"valid": {time.Hour, false, true}, "expired": {-time.Minute, false, false}, "without TLS": {time.Hour, true, false}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(t, err)
		now := time.Now()
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(c.end)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		must.Succeed(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		must.Succeed(t, err)
		o := &Options{Certificate: filepath.Join(t.TempDir(), "cert.pem"), Key: filepath.Join(t.TempDir(), "key.pem"), Plaintext: c.plain}
		for file, block := range map[string]*pem.Block{o.Certificate: {Type: "CERTIFICATE", Bytes: der},
			o.Key: {Type: "PRIVATE KEY", Bytes: private}} {
			must.Succeed(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
		}
		if got := clientCertificate(o); (got != nil) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCompliance checks what a client with a policy offers.
func TestCompliance(t *testing.T) {
	for policy, want := range map[compliance.Policy]struct {
		version uint16
		curve   tls.CurveID
	}{
		compliance.FIPS1402: {tls.VersionTLS12, tls.CurveP256},
		compliance.PQC:      {tls.VersionTLS13, tls.X25519MLKEM768},
	} {
		near, far := net.Pipe()
		offered := make(chan *tls.ClientHelloInfo, 1)
		see := func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			offered <- h
			return nil, errors.New("seen")
		}
		server := tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: see})
		go func() {
			_ = server.HandshakeContext(t.Context()) // it fails
			close(offered)
			_ = far.Close()
		}()
		p := &perHandshake{o: &Options{Roots: System, ServerName: "istiod", Compliance: policy}}
		_, _, err := p.ClientHandshake(t.Context(), "istiod", near)
		if err == nil {
			t.Error("the handshake succeeds")
		}
		_ = near.Close()
		h := <-offered
		if h == nil {
			t.Fatalf("%s: the client offers nothing: %v", policy, err)
		}
		if !slices.Equal(h.SupportedVersions, []uint16{want.version}) || !slices.Equal(h.SupportedCurves, []tls.CurveID{want.curve}) {
			t.Errorf("%s: offers versions %v and curves %v", policy, h.SupportedVersions, h.SupportedCurves)
		}
	}
}
