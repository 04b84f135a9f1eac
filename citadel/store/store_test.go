package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options = rotation.Options{Organization: "cluster.local", Lifetime: 100 * 24 * time.Hour, GracePercent: 20, MaxTTL: 24 * time.Hour}
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func stores(t *testing.T) map[string]func(*testing.T) store.Store {
	t.Helper()
	return map[string]func(*testing.T) store.Store{
		"folder": func(t *testing.T) store.Store { return store.Folder{Path: filepath.Join(t.TempDir(), "state")} },
		"secret": func(*testing.T) store.Store {
			return store.Secret{Client: newClient(), Namespace: "istio-system", Name: "istio-ca-secret"}
		},
	}
}

// newClient returns a client of an API server in memory that counts resource versions and refuses conflicting writes.
func newClient() *fake.FakeDynamicClient {
	c := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{secrets: "SecretList"})
	var mu sync.Mutex
	version := 0
	c.PrependReactor("*", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		var o runtime.Object
		switch a := a.(type) {
		case clienttesting.CreateActionImpl:
			o = a.Object
		case clienttesting.UpdateActionImpl:
			o = a.Object
		default:
			return false, nil, nil
		}
		version++
		o.(metav1.Object).SetResourceVersion(string(rune('a' + version)))
		return false, nil, nil
	})
	return c
}

// TestRotationIsStored takes every step of a rotation, each by another server that knows nothing but the store.
func TestRotationIsStored(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			st, now := open(t), start
			s, err := store.Step(t.Context(), st, options, now, true)
			must.Succeed(t, err)
			first := s.Signing.Certificate
			for step, want := range []struct{ next, old int }{{1, 0}, {0, 1}, {0, 0}} {
				now = s.Due(options)
				if f, err := store.Step(t.Context(), st, options, now, false); err != nil || len(f.Roots()) != len(s.Roots()) {
					t.Fatalf("step %d: one that does not lead has taken it: %v", step, err)
				}
				s, err = store.Step(t.Context(), st, options, now, true)
				must.Succeed(t, err)
				again, err := store.Step(t.Context(), st, options, now, true)
				must.Succeed(t, err)
				for _, s := range []rotation.State{s, again} {
					if (s.Next != nil) != (want.next == 1) || len(s.Old) != want.old ||
						!s.Since.Equal(now) || s.Signing.Certificate.Equal(first) != (step == 0) {
						t.Errorf("step %d: next %v, %d old, since %v", step, s.Next != nil, len(s.Old), s.Since)
					}
				}
				if !again.Signing.Certificate.Equal(s.Signing.Certificate) || !again.Due(options).Equal(s.Due(options)) {
					t.Errorf("step %d: what was stored differs", step)
				}
				if _, err := again.Bundle(now); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestServersThatStartTogether have one CA.
func TestServersThatStartTogether(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			st := open(t)
			var wg sync.WaitGroup
			got := make([]rotation.State, 8)
			for i := range got {
				wg.Go(func() {
					var err error
					if got[i], err = store.Step(context.Background(), st, options, start, true); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, s := range got {
				if s.Signing == nil || !s.Signing.Certificate.Equal(got[0].Signing.Certificate) {
					t.Error("there are two CAs")
				}
			}
		})
	}
}

// TestFolder keeps what it had in spite of what a crash leaves, and keeps it from others.
func TestFolder(t *testing.T) {
	f := store.Folder{Path: filepath.Join(t.TempDir(), "state")}
	s, err := store.Step(t.Context(), f, options, start, true)
	must.Succeed(t, err)
	for _, name := range []string{".ca-1", "ca.0011"} { // a save that ended before its rename
		must.Succeed(t, os.MkdirAll(filepath.Join(f.Path, name), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(f.Path, name, "ca-cert.pem"), []byte("torn"), 0o600))
	}
	again, err := store.Step(t.Context(), f, options, start, true)
	if err != nil || !again.Signing.Certificate.Equal(s.Signing.Certificate) {
		t.Fatalf("another CA, %v", err)
	}
	if _, err := store.Step(t.Context(), f, options, s.Due(options), true); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(f.Path, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if i.Mode()&os.ModeSymlink == 0 && i.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may read %s: %v", path, i.Mode())
		}
		if d.Name() == ".ca-1" || d.Name() == "ca.0011" {
			t.Errorf("%s is left", path)
		}
		return nil
	})
	must.Succeed(t, err)
	if err := os.Chmod(f.Path, 0o755); err != nil { //nolint:gosec // that is what is tried
		t.Fatal(err)
	}
	if err := f.Save(t.Context(), map[string][]byte{}, "x"); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("others may read it, and it is used: %v", err)
	}
	must.Succeed(t, os.Chmod(f.Path, 0o700))
	_, version, err := f.Load(t.Context())
	must.Succeed(t, err)
	if err := f.Save(t.Context(), map[string][]byte{"no/folder": nil}, version); err == nil {
		t.Error("a file was written into no folder")
	}
	flat := store.Folder{Path: filepath.Join(t.TempDir(), "flat")}
	must.Succeed(t, os.MkdirAll(filepath.Join(flat.Path, "ca"), 0o700))
	if _, _, err := flat.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "is no symbolic link") {
		t.Errorf("a folder that was copied without its links: %v", err)
	}
	list, err := filepath.Glob(filepath.Join(f.Path, ".ca-*"))
	if err != nil || len(list) != 1 || filepath.Base(list[0]) != version {
		t.Errorf("after a save that failed there are %v, want %s alone, %v", list, version, err)
	}
}

// TestFolderOfOthers: no CA is read that another user may have read or put there. Certificates may be public.
func TestFolderOfOthers(t *testing.T) {
	f := store.Folder{Path: filepath.Join(t.TempDir(), "state")}
	s, err := store.Step(t.Context(), f, options, start, true)
	must.Succeed(t, err)
	if _, err := store.Step(t.Context(), f, options, s.Due(options), true); err != nil { // there is a next key
		t.Fatal(err)
	}
	load := func() error {
		_, _, err := f.Load(t.Context())
		return err
	}
	in := func(name string) string { return filepath.Join(f.Path, "ca", name) }
	if err := errors.Join(os.Chmod(in("ca-cert.pem"), 0o644), load()); err != nil { //nolint:gosec // a certificate
		t.Errorf("a public certificate: %v", err)
	}
	for _, name := range []string{"ca-key.pem", "next-ca-key.pem"} {
		for _, mode := range []os.FileMode{0o644, 0o640, 0o602} {
			must.Succeed(t, os.Chmod(in(name), mode))
			if err := load(); err == nil || !strings.Contains(err.Error(), "chmod go= ") {
				t.Errorf("%s of mode %o is used: %v", name, mode, err)
			}
		}
		if err := errors.Join(os.Chmod(in(name), 0o600), load()); err != nil {
			t.Errorf("%s as it was: %v", name, err)
		}
	}
	if os.Geteuid() != 0 { // only root gives files away
		return
	}
	for _, path := range []string{f.Path, in(""), in("ca-key.pem"), in("next-ca-key.pem")} {
		must.Succeed(t, os.Chown(path, 1234, -1))
		if err := load(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("another user owns %s, and it is used: %v", path, err)
		}
		if err := errors.Join(os.Chown(path, 0, -1), load()); err != nil {
			t.Errorf("%s as it was: %v", path, err)
		}
	}
}

// TestFolderIsReadWhileItChanges has one process read what another one replaces all the time.
func TestFolderIsReadWhileItChanges(t *testing.T) {
	f := store.Folder{Path: filepath.Join(t.TempDir(), "state")}
	must.Succeed(t, f.Save(t.Context(), map[string][]byte{"a": []byte("0"), "b": []byte("0")}, ""))
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			_, version, err := f.Load(ctx)
			if err == nil {
				text := []byte(version)
				err = f.Save(ctx, map[string][]byte{"a": text, "b": text}, version)
			}
			if err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	versions := map[string]bool{}
	for range 2000 {
		files, version, err := f.Load(t.Context())
		if err != nil || len(files) != 2 || !bytes.Equal(files["a"], files["b"]) {
			t.Errorf("%s: %q, %v", version, files, err)
			break
		}
		versions[version] = true
	}
	cancel()
	if err := <-written; err != nil {
		t.Error(err)
	}
	t.Log(len(versions), "versions")
}

// TestServersWereOff while the root that signs expired: the next one, which all were told of, signs alone.
func TestServersWereOff(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			st := open(t)
			s, err := store.Step(t.Context(), st, options, start, true)
			must.Succeed(t, err)
			if s, err = store.Step(t.Context(), st, options, s.Due(options), true); err != nil || s.Next == nil {
				t.Fatal(err)
			}
			next, late := s.Next.Certificate, s.Signing.Certificate.NotAfter.Add(time.Hour)
			for _, lead := range []bool{false, true, false} {
				s, err := store.Step(t.Context(), st, options, late, lead)
				must.Succeed(t, err)
				if !s.Signing.Certificate.Equal(next) || s.Next != nil || len(s.Roots()) != 1 {
					t.Errorf("it signs with %v, and %d roots are trusted", s.Signing.Certificate.SerialNumber, len(s.Roots()))
				}
			}
			files, _, err := st.Load(t.Context())
			if err != nil || !bytes.Equal(files["ca-cert.pem"], pki.EncodeCertificates(next)) || files["next-ca-cert.pem"] != nil {
				t.Errorf("the expired root is still stored: %v", err)
			}
			if _, err := store.Step(t.Context(), st, options, next.NotAfter.Add(time.Hour), true); !errors.Is(err, pki.ErrExpired) {
				t.Errorf("nothing is valid any more: %v", err)
			}
		})
	}
}

// TestBrokenState is an error: another CA in its place would be one that nobody trusts.
func TestBrokenState(t *testing.T) {
	st := store.Secret{Client: newClient(), Namespace: "istio-system", Name: "istio-ca-secret"}
	if _, err := store.Step(t.Context(), st, options, start, true); err != nil {
		t.Fatal(err)
	}
	files, version, err := st.Load(t.Context())
	must.Succeed(t, err)
	files["ca-key.pem"] = files["ca-key.pem"][:100]
	must.Succeed(t, st.Save(t.Context(), files, version))
	if s, err := store.Step(t.Context(), st, options, start, true); !errors.Is(err, store.ErrBroken) ||
		!strings.Contains(err.Error(), "secret istio-system/istio-ca-secret: ") {
		t.Errorf("%+v, %v", s, err)
	}
	if now, _, err := st.Load(t.Context()); err != nil || !bytes.Equal(now["ca-key.pem"], files["ca-key.pem"]) {
		t.Errorf("it was written over, %v", err)
	}
}

// plugged returns the files of a new CA.
func plugged(t *testing.T) pki.Files {
	t.Helper()
	b, err := pki.NewSelfSigned("example", time.Hour, start)
	must.Succeed(t, err)
	f, err := b.Encode()
	must.Succeed(t, err)
	return f
}

func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
}

// TestPlugged reads folders in both layouts.
func TestPlugged(t *testing.T) {
	f := plugged(t)
	for name, c := range map[string]struct {
		files map[string][]byte
		found bool
		error bool
	}{
		"none":        {nil, false, false},
		"other files": {map[string][]byte{"README": []byte("x")}, false, false},
		"Istio's names": {map[string][]byte{"ca-cert.pem": f.Certificate, "ca-key.pem": f.Key,
			"root-cert.pem": f.Roots, "cert-chain.pem": f.Chain}, true, false},
		"without a chain":  {map[string][]byte{"ca-cert.pem": f.Certificate, "ca-key.pem": f.Key, "root-cert.pem": f.Roots}, true, false},
		"Kubernetes names": {map[string][]byte{"tls.crt": f.Certificate, "tls.key": f.Key, "ca.crt": f.Roots}, true, false},
		"a list for them": {map[string][]byte{"tls.crt": f.Certificate, "tls.key": f.Key, "ca.crt": f.Roots, "ca-crl.pem": []byte("x")},
			true, false},
		"a list alone":  {map[string][]byte{"ca-crl.pem": []byte("x")}, false, true},
		"a chain alone": {map[string][]byte{"cert-chain.pem": f.Chain}, false, true},
		"no key":        {map[string][]byte{"ca-cert.pem": f.Certificate, "root-cert.pem": f.Roots}, false, true},
		"no root":       {map[string][]byte{"tls.crt": f.Certificate, "tls.key": f.Key}, false, true},
		"broken":        {map[string][]byte{"ca-cert.pem": f.Certificate[:50], "ca-key.pem": f.Key, "root-cert.pem": f.Roots}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, c.files)
			p, err := store.ReadPlugged(dir, start)
			if (p != nil) != c.found || (err != nil) != c.error {
				t.Errorf("%v, %v", p, err)
			}
			if p != nil && string(p.CRL) != string(c.files["ca-crl.pem"]) {
				t.Errorf("the list of revoked certificates is %q", p.CRL)
			}
		})
	}
}

// TestPluggedLinks takes a link that leads to nothing for a missing file, not for a part that the operator left out.
func TestPluggedLinks(t *testing.T) {
	f := plugged(t)
	dir := t.TempDir()
	files := map[string][]byte{"ca-cert.pem": f.Certificate, "ca-key.pem": f.Key, "root-cert.pem": f.Roots, "cert-chain.pem": f.Chain,
		"ca-crl.pem": nil}
	writeFiles(t, dir, files)
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Succeed(t, errors.Join(os.Remove(path), os.Symlink("..data/"+name, path)))
		if p, err := store.ReadPlugged(dir, start); p != nil || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
		must.Succeed(t, errors.Join(os.Remove(path), os.WriteFile(path, text, 0o600)))
	}
	if p, err := store.ReadPlugged(dir, start); p == nil || err != nil {
		t.Errorf("%v, %v", p, err)
	}
	link := filepath.Join(t.TempDir(), "cacerts")
	must.Succeed(t, os.Symlink("nowhere", link))
	if p, err := store.ReadPlugged(link, start); p != nil || err == nil {
		t.Errorf("a folder that is a link to nowhere: %v, %v", p, err)
	}
}

// lease is a Lease that is valid or not.
type lease bool

func (l *lease) Valid() bool { return bool(*l) }

// TestDeleted writes a CA again that was deleted while a server runs, if that server leads, and makes no new one.
func TestDeleted(t *testing.T) {
	client := newClient()
	secret := store.Secret{Client: client, Namespace: "istio-system", Name: store.Cacerts, Earlier: store.SelfSigned}
	lease, start := lease(false), time.Now()
	st := &store.Kept{Store: secret, Lease: &lease}
	first, err := store.Step(t.Context(), st, options, start, false)
	must.Succeed(t, err)
	remove := func() {
		must.Succeed(t, client.Resource(secrets).Namespace("istio-system").Delete(t.Context(), store.Cacerts, metav1.DeleteOptions{}))
	}
	remove()
	if s, err := store.Step(t.Context(), st, options, start, false); err == nil {
		t.Errorf("a server that does not lead has %v", s.Signing.Certificate.SerialNumber)
	}
	lease = true
	for range 2 {
		s, err := store.Step(t.Context(), st, options, start, false)
		if err != nil || !s.Signing.Certificate.Equal(first.Signing.Certificate) {
			t.Errorf("%v", err)
		}
	}
	files, version, err := secret.Load(t.Context())
	must.Succeed(t, err)
	files["ca-key.pem"] = []byte("x")
	must.Succeed(t, secret.Save(t.Context(), files, version))
	if _, err := store.Step(t.Context(), st, options, start, false); err == nil {
		t.Error("a broken CA is used")
	}
	remove()
	if s, err := store.Step(t.Context(), st, options, start, false); err != nil || !s.Signing.Certificate.Equal(first.Signing.Certificate) {
		t.Errorf("after it was broken and deleted: %v", err)
	}
}

// TestCacerts takes the CA of the Secret istio-ca-secret where there is one, and never one that an operator has put
// into cacerts.
func TestCacerts(t *testing.T) {
	client := newClient()
	self := store.Secret{Client: client, Namespace: "istio-system", Name: store.SelfSigned}
	both := store.Secret{Client: client, Namespace: "istio-system", Name: store.Cacerts, Earlier: store.SelfSigned}
	first, err := store.Step(t.Context(), self, options, start, true)
	must.Succeed(t, err)
	if s, err := store.Step(t.Context(), both, options, start, true); err != nil || !s.Signing.Certificate.Equal(first.Signing.Certificate) {
		t.Errorf("%v", err)
	}
	files, _, err := self.Load(t.Context())
	must.Succeed(t, err)
	operators := store.Secret{Client: newClient(), Namespace: "istio-system", Name: store.Cacerts}
	generated := store.Secret{Client: newClient(), Namespace: "istio-system", Name: store.Cacerts}
	must.Succeed(t, generated.Save(t.Context(), files, ""))
	if s, err := store.Step(t.Context(), generated, options, start, true); err != nil ||
		!s.Signing.Certificate.Equal(first.Signing.Certificate) {
		t.Errorf("of a server's making: %v", err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"ca-cert.pem": ""}}}
	o.SetName(store.Cacerts)
	if _, err := operators.Client.Resource(secrets).Namespace("istio-system").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Step(t.Context(), operators, options, start, true); err == nil || errors.Is(err, store.ErrAway) {
		t.Errorf("an operator's own: %v", err)
	}
	dir := t.TempDir()
	writeFiles(t, dir, files)
	if p, err := store.ReadPlugged(dir, start); p == nil || err != nil {
		t.Errorf("without the mark: %v, %v", p, err)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "istio-generated"), nil, 0o600))
	if p, err := store.ReadPlugged(dir, start); p != nil || err != nil {
		t.Errorf("of a server's making, mounted: %v, %v", p, err)
	}
	unreadable := t.TempDir()
	for name := range files {
		must.Succeed(t, os.Mkdir(filepath.Join(unreadable, name), 0o700))
	}
	if p, err := store.ReadPlugged(unreadable, start); err == nil {
		t.Errorf("files that cannot be read are taken for none: %v", p)
	}
}
