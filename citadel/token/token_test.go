package token_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/token"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// clusterLocal is the trust domain of the mesh.
type clusterLocal struct{ authenticate.TrustDomains }

func (clusterLocal) TrustDomain() string { return "cluster.local" }

// TestToken has a server accept what a command on the same folder prints, and nothing of another folder.
func TestToken(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "state"), time.Now()
	server, err := token.NewKey(dir)
	must.Succeed(t, err)
	command, err := token.LoadKey(dir)
	must.Succeed(t, err)
	stranger, err := token.NewKey(filepath.Join(t.TempDir(), "other"))
	must.Succeed(t, err)
	o := authenticate.OIDC{
		Rule:         authenticate.Rule{Issuer: token.Issuer, Audiences: []string{token.Audience}},
		TrustDomains: clusterLocal{},
		Keys:         authenticate.NewKeySet(func(context.Context) ([]byte, error) { return server.JWKS() }),
	}
	good, err := command.Issue("a", "web", time.Hour, now)
	must.Succeed(t, err)
	p, err := o.Authenticate(t.Context(), authenticate.Request{Token: good})
	if err != nil || p.ID.String() != "spiffe://cluster.local/ns/a/sa/web" {
		t.Errorf("%+v, %v", p, err)
	}
	bad, err := stranger.Issue("a", "web", time.Hour, now)
	must.Succeed(t, err)
	if p, err := o.Authenticate(t.Context(), authenticate.Request{Token: bad}); err == nil {
		t.Errorf("%+v", p)
	}
	for _, c := range []struct {
		namespace, account string
		ttl                time.Duration
	}{{"", "web", time.Hour}, {"a", "", time.Hour}, {"a:b", "web", time.Hour},
		{"a", "../x", time.Hour}, {"a", "web", 0}, {"a", "web", 25 * time.Hour}} {
		if text, err := command.Issue(c.namespace, c.account, c.ttl, now); err == nil {
			t.Errorf("%+v: %s", c, text)
		}
	}
	i, err := os.Stat(filepath.Join(dir, "token-key.pem"))
	if err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i, err)
	}
	if _, err := token.LoadKey(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a key where there is no folder")
	}
	for _, path := range []string{dir, filepath.Join(dir, "token-key.pem")} {
		i, err := os.Stat(path)
		must.Succeed(t, err)
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // that is what is tried
			t.Fatal(err)
		}
		if _, err := token.NewKey(dir); err == nil {
			t.Errorf("others may read %s, and it is used", path)
		}
		must.Succeed(t, os.Chmod(path, i.Mode().Perm()))
		if os.Geteuid() != 0 { // only root gives files away
			continue
		}
		must.Succeed(t, os.Chown(path, 1234, -1))
		if _, err := token.NewKey(dir); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("another user owns %s, and it is used: %v", path, err)
		}
		must.Succeed(t, os.Chown(path, 0, -1))
	}
	if _, err := token.NewKey(dir); err != nil {
		t.Errorf("the folder as it was: %v", err)
	}
}

// TestOpenFolderStaysEmpty: by the time that the mode of a folder is mended, others could have replaced the key in it.
func TestOpenFolderStaysEmpty(t *testing.T) {
	for name, open := range map[string]func(dir string) error{
		"writable": func(dir string) error { return os.Chmod(dir, 0o777) }, //nolint:gosec // that is what is tried
		"readable": func(dir string) error { return os.Chmod(dir, 0o750) }, //nolint:gosec // that is what is tried
		"given away": func(dir string) error {
			if os.Geteuid() != 0 { // only root gives folders away
				return os.Chmod(dir, 0o770) //nolint:gosec // that is what is tried
			}
			return os.Chown(dir, 1234, -1)
		},
	} {
		dir := t.TempDir()
		must.Succeed(t, errors.Join(os.Chmod(dir, 0o700), open(dir)))
		_, err := token.NewKey(dir)
		list, read := os.ReadDir(dir)
		if err == nil || read != nil || len(list) > 0 {
			t.Errorf("%s: it holds %v, %v, %v", name, list, err, read)
		}
	}
}

// TestKeysMadeTogether are one key.
func TestKeysMadeTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var wg sync.WaitGroup
	sets := make([]string, 8)
	for i := range sets {
		wg.Go(func() {
			k, err := token.NewKey(dir)
			if err != nil {
				t.Error(err)
				return
			}
			text, err := k.JWKS()
			if err != nil {
				t.Error(err)
			}
			sets[i] = string(text)
		})
	}
	wg.Wait()
	for _, s := range sets {
		if s != sets[0] || s == "" {
			t.Errorf("%s, %s", s, sets[0])
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
