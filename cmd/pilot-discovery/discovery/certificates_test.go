package discovery

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/bootstrap"
)

// TestWhereTheServersCertificateComesFrom: files that are mounted count before PILOT_CERT_PROVIDER, and their roots are
// in either of two places.
func TestWhereTheServersCertificateComesFrom(t *testing.T) {
	const cert, key, first, second = "./var/run/secrets/istiod/tls/tls.crt", "./var/run/secrets/istiod/tls/tls.key",
		"./var/run/secrets/istiod/ca/root-cert.pem", "./var/run/secrets/istiod/tls/ca.crt"
	for _, c := range []struct {
		provider string
		files    []string
		off      bool
		roots    string
		serves   bool
		bad      bool
	}{
		{provider: "none", off: true},
		{provider: "none", files: []string{cert}, off: true},
		{provider: "none", files: []string{cert, key}, serves: true},
		{provider: "istiod"},
		{provider: "custom", bad: true},
		{provider: "custom", files: []string{cert, key, second}, serves: true, roots: second},
		{provider: "custom", files: []string{cert, key, first, second}, serves: true, roots: first},
		{provider: "elsewhere", bad: true},
	} {
		t.Chdir(t.TempDir())
		for _, name := range c.files {
			must.Succeed(t, os.MkdirAll(filepath.Dir(name), 0o700))
			must.Succeed(t, os.WriteFile(name, nil, 0o600))
		}
		var got bootstrap.Certificates
		err := (&flags{provider: c.provider}).provide(&got)
		if (err != nil) != c.bad {
			t.Errorf("%s, %v: %v", c.provider, c.files, err)
			continue
		}
		if err == nil && (got.Off != c.off || got.Serving.Roots != c.roots || (got.Serving.Certificate != "") != c.serves) {
			t.Errorf("%s, %v: %+v", c.provider, c.files, got)
		}
	}
}
