package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

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
