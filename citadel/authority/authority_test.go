package authority_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const name = "istiod.istio-system.svc"

func newAuthority(t *testing.T, change func(*authority.Options)) (*authority.Authority, *ca.CA) {
	t.Helper()
	o := authority.Options{
		CA:       ca.New(ca.Options{TTL: 24 * time.Hour, MaxTTL: 24 * time.Hour}),
		Rotation: rotation.Options{Organization: "cluster.local", Lifetime: 10 * 24 * time.Hour, GracePercent: 20, MaxTTL: 24 * time.Hour},
		Interval: time.Hour, NoWatch: true, // no bubble waits for events
		Names: func() []string { return []string{name} }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	change(&o)
	return authority.New(o), o.CA
}

// running returns an Authority that has loaded its CA and runs until the test ends.
func running(t *testing.T, change func(*authority.Options)) (*authority.Authority, *ca.CA) {
	t.Helper()
	a, c := newAuthority(t, change)
	must.Succeed(t, a.Load(t.Context()))
	run(t, a)
	return a, c
}

// run runs an Authority until the test ends.
func run(t *testing.T, a *authority.Authority) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// plug writes a CA into a folder.
func plug(t *testing.T, dir string, b *pki.Bundle, roots ...*x509.Certificate) {
	t.Helper()
	f, err := b.Encode()
	must.Succeed(t, err)
	if roots != nil {
		f.Roots = pki.EncodeCertificates(roots...)
	}
	for name, text := range map[string][]byte{"ca-cert.pem": f.Certificate, "ca-key.pem": f.Key, "root-cert.pem": f.Roots} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
}

// pass lets time pass, and waits until all that is due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newRoot(t *testing.T) *pki.Bundle {
	t.Helper()
	b, err := pki.NewSelfSigned("example", 365*24*time.Hour, time.Now())
	must.Succeed(t, err)
	return b
}

// TestPlugged follows the folder of a CA: good ones are used, and the last good one stays in place of others.
func TestPlugged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		plug(t, dir, one)
		a, c := running(t, func(o *authority.Options) { o.Folder = dir })
		uses := func(want *pki.Bundle, roots int, finding string) {
			t.Helper()
			pass(2 * time.Second)
			b := c.Bundle()
			if !b.Certificate.Equal(want.Certificate) || len(b.Roots) != roots || strings.Count(string(a.Roots()), "BEGIN CERTIFICATE") != roots {
				t.Errorf("it signs with %v, %d roots", b.Certificate.SerialNumber, len(b.Roots))
			}
			if list := a.Findings(); (finding == "") != (len(list) == 0) || finding != "" && !strings.Contains(list[0].Message, finding) {
				t.Errorf("findings %v: want %q", list, finding)
			}
		}
		uses(one, 1, "")
		plug(t, dir, two)
		uses(one, 1, "another root")
		plug(t, dir, two, two.Certificate, one.Certificate)
		uses(one, 1, "another root") // nobody has heard of it yet
		plug(t, dir, one, one.Certificate, two.Certificate)
		uses(one, 2, "")
		plug(t, dir, two, two.Certificate, one.Certificate)
		uses(two, 2, "")
		must.Succeed(t, os.Remove(filepath.Join(dir, "ca-key.pem")))
		uses(two, 2, "incomplete")
		for _, f := range []string{"ca-cert.pem", "root-cert.pem"} {
			must.Succeed(t, os.Remove(filepath.Join(dir, f)))
		}
		uses(two, 2, "gone")
		plug(t, dir, two)
		uses(two, 1, "")
	})
}

// TestSelfSigned replaces the root in time, once that was due for an hour, and renews the server's own certificate.
func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		a, c := running(t, func(o *authority.Options) { o.Store = store.Folder{Path: dir} })
		first := c.Bundle().Certificate
		shown := handshake(t, a, c)
		for _, step := range []struct {
			wait    time.Duration
			roots   int
			another bool
		}{{8*24*time.Hour + 50*time.Minute, 1, false}, {20 * time.Minute, 2, false}, {27 * time.Hour, 2, true}, {27 * time.Hour, 1, true}} {
			pass(step.wait)
			if b := c.Bundle(); len(b.Roots) != step.roots || b.Certificate.Equal(first) == step.another {
				t.Errorf("after %s: %d roots, another %v", step.wait, len(b.Roots), !b.Certificate.Equal(first))
			}
			last := shown
			if shown = handshake(t, a, c); shown.Equal(last) || time.Until(shown.NotAfter) < 11*time.Hour {
				t.Errorf("the server's certificate is valid until %v, now %v", shown.NotAfter, time.Now())
			}
		}
	})
}

// handshake returns the certificate that the server shows to a client which trusts the CA's roots.
func handshake(t *testing.T, a *authority.Authority, c *ca.CA) *x509.Certificate {
	t.Helper()
	pool := x509.NewCertPool()
	for _, r := range c.Bundle().Roots {
		pool.AddCert(r)
	}
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	go func() {
		s := tls.Server(far, a.TLS(&tls.Config{MinVersion: tls.VersionTLS12}))
		_, _ = io.Copy(io.Discard, s)
		_ = far.Close()
	}()
	client := tls.Client(near, &tls.Config{RootCAs: pool, ServerName: name})
	must.Succeed(t, client.HandshakeContext(t.Context()))
	return client.ConnectionState().PeerCertificates[0]
}

// TestOwnCertificateComesFirst: the CA signs with a new bundle only when the server trusts what that signs.
func TestOwnCertificateComesFirst(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		plug(t, dir, one)
		var during []*pki.Bundle // what the CA signs with while the server's own certificate is made
		a, c := newAuthority(t, func(o *authority.Options) {
			o.Folder, o.MultiRoot = dir, true
			o.Names = func() []string {
				during = append(during, o.CA.Bundle())
				return []string{name}
			}
		})
		must.Succeed(t, a.Load(t.Context()))
		if len(during) != 1 || during[0] != nil {
			t.Errorf("%v", during)
		}
		during = nil
		run(t, a)
		plug(t, dir, two)
		pass(1500 * time.Millisecond)
		if !c.Bundle().Certificate.Equal(two.Certificate) || len(during) == 0 || !during[0].Certificate.Equal(one.Certificate) {
			t.Error("the CA signs with what the server does not trust yet")
		}
		handshake(t, a, c)
	})
}

// TestRenewalFails is a finding, and logged once, while the last certificate stays in use.
func TestRenewalFails(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		short, err := pki.NewSelfSigned("example", 30*time.Minute, time.Now())
		must.Succeed(t, err)
		plug(t, dir, short)
		var log bytes.Buffer
		a, c := running(t, func(o *authority.Options) {
			o.Folder, o.Logger = dir, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
		})
		pass(25 * time.Minute)
		list := a.Findings()
		if len(list) != 1 || list[0].Code != "ServerCertificate" ||
			!strings.Contains(list[0].Message, "expires at") || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%v, logged as %s", list, log.String())
		}
		handshake(t, a, c)
	})
}

// TestClockIsSetBack: a certificate that the server made while its clock was a day ahead is replaced by one that
// clients take.
func TestClockIsSetBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		plug(t, dir, newRoot(t))
		var ahead atomic.Int64
		a, c := running(t, func(o *authority.Options) {
			now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			o.Folder, o.CA = dir, ca.New(ca.Options{TTL: time.Hour, MaxTTL: time.Hour, Now: now})
		})
		ahead.Store(int64(24 * time.Hour))
		time.Sleep(2500 * time.Millisecond)
		ahead.Store(0)
		pass(2500 * time.Millisecond)
		handshake(t, a, c)
	})
}

// lease is a store.Lease that is valid or not.
type lease bool

func (l lease) Valid() bool { return bool(l) }

// TestNotLeader takes no step of a rotation, but what another server has taken.
func TestNotLeader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		_, c := running(t, func(o *authority.Options) {
			o.Store, o.Lease = store.Folder{Path: dir}, lease(false)
		})
		time.Sleep(8*24*time.Hour + 2*time.Hour)
		if n := len(c.Bundle().Roots); n != 1 {
			t.Fatalf("%d roots", n)
		}
		leader := rotation.Options{Organization: "cluster.local", Lifetime: 10 * 24 * time.Hour, GracePercent: 20, MaxTTL: 24 * time.Hour}
		if _, err := store.Step(t.Context(), store.Folder{Path: dir}, leader, time.Now(), true); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		if n := len(c.Bundle().Roots); n != 2 {
			t.Errorf("%d roots", n)
		}
	})
}

// TestReplaced keeps its CA when the stored one is replaced by one that shares no root with it.
func TestReplaced(t *testing.T) {
	dir, another := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "another")
	synctest.Test(t, func(t *testing.T) {
		a, c := running(t, func(o *authority.Options) { o.Store = store.Folder{Path: dir} })
		first := c.Bundle().Certificate
		if _, err := store.Step(t.Context(), store.Folder{Path: another},
			rotation.Options{Lifetime: 24 * time.Hour, GracePercent: 20}, time.Now(), true); err != nil {
			t.Fatal(err)
		}
		files, _, err := store.Folder{Path: another}.Load(t.Context())
		must.Succeed(t, err)
		_, version, err := store.Folder{Path: dir}.Load(t.Context())
		must.Succeed(t, err)
		must.Succeed(t, (store.Folder{Path: dir}).Save(t.Context(), files, version))
		pass(2 * time.Minute)
		if !c.Bundle().Certificate.Equal(first) || len(a.Findings()) != 1 || !strings.Contains(a.Findings()[0].Message, "shares no root") {
			t.Errorf("%v", a.Findings())
		}
	})
}

// later is a Store that has another answer until a time.
type later struct {
	store.Store
	until time.Time
	data  map[string][]byte
	err   error
}

func (s later) Load(ctx context.Context) (map[string][]byte, string, error) {
	if time.Now().Before(s.until) {
		return s.data, "1", s.err
	}
	return s.Store.Load(ctx)
}

// TestLoadWaits for a store that is away, and says so.
func TestLoadWaits(t *testing.T) {
	testLoadWaits(t, later{err: store.ErrAway}, "")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a, _ := newAuthority(t, func(o *authority.Options) {
			o.Store = later{store.Folder{}, time.Now().Add(time.Hour), nil, store.ErrAway}
		})
		if err := a.Load(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// TestLoadWaitsForAStoredCA that cannot be used, makes none in its place, and says so until it is mended.
func TestLoadWaitsForAStoredCA(t *testing.T) {
	testLoadWaits(t, later{data: map[string][]byte{}}, "correct or restore")
}

// testLoadWaits loads from a store that has its answer for a minute, which is a finding with a fix.
func testLoadWaits(t *testing.T, s later, fix string) {
	s.Store = store.Folder{Path: filepath.Join(t.TempDir(), "state")}
	synctest.Test(t, func(t *testing.T) {
		s.until = time.Now().Add(time.Minute)
		a, c := newAuthority(t, func(o *authority.Options) { o.Store = s })
		loaded := make(chan error)
		go func() { loaded <- a.Load(t.Context()) }()
		time.Sleep(30 * time.Second)
		if f := a.Findings(); len(f) != 1 || !strings.Contains(f[0].Fix, fix) || c.Bundle() != nil || a.Loaded() {
			t.Errorf("%v", f)
		}
		if err := <-loaded; err != nil || len(a.Findings()) != 0 || c.Bundle() == nil {
			t.Errorf("%v, %v", err, a.Findings())
		}
	})
}

// TestRemedyOfAStore: once a CA is loaded, the finding about its store says what mends that fault and no other.
func TestRemedyOfAStore(t *testing.T) {
	for problem, fix := range map[error]string{
		store.ErrAway:    "let this server read and write",
		store.ErrBroken:  "correct or restore",
		store.ErrDeleted: "start or restart no server",

		fmt.Errorf("%w: %w", store.ErrBroken, pki.ErrExpired): "delete ",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &changing{Store: store.Folder{Path: filepath.Join(t.TempDir(), "state")}}
			a, _ := newAuthority(t, func(o *authority.Options) { o.Store = s })
			if err := a.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); a.Run(ctx) }()
			s.problem.Store(&problem)
			time.Sleep(2 * time.Minute)
			if f := a.Findings(); len(f) != 1 || !strings.Contains(f[0].Fix, fix) {
				t.Errorf("%v: %v", problem, f)
			}
			s.problem.Store(nil)
			time.Sleep(2 * time.Minute)
			if f := a.Findings(); len(f) != 0 {
				t.Errorf("%v has ended, and the finding stays: %v", problem, f)
			}
			cancel()
			<-ended
		})
	}
}

// changing is a Store that fails while it has a problem.
type changing struct {
	store.Store
	problem atomic.Pointer[error]
}

func (s *changing) Load(ctx context.Context) (map[string][]byte, string, error) {
	if err := s.problem.Load(); err != nil {
		return nil, "", *err
	}
	return s.Store.Load(ctx)
}

// TestLoadFails without a CA.
func TestLoadFails(t *testing.T) {
	for what, change := range map[string]func(*authority.Options){
		"nothing": func(*authority.Options) {},
		"a store away": func(o *authority.Options) {
			o.Store = later{until: time.Now().Add(time.Hour), err: errors.New("the API server does not answer")}
		},
		"a torn folder": func(o *authority.Options) {
			o.Folder = t.TempDir()
			must.Succeed(t, os.WriteFile(filepath.Join(o.Folder, "ca-cert.pem"), []byte("x"), 0o600))
		},
	} {
		a, c := newAuthority(t, change)
		if err := a.Load(t.Context()); err == nil || c.Bundle() != nil || a.Roots() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMetrics shows when the CA expires.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	dir := t.TempDir()
	plug(t, dir, newRoot(t))
	a, c := newAuthority(t, func(o *authority.Options) { o.Folder, o.Registerer = dir, reg })
	must.Succeed(t, a.Load(t.Context()))
	n, err := testutil.GatherAndCount(reg, "citadel_server_root_cert_expiry_timestamp", "citadel_server_root_cert_expiry_seconds",
		"citadel_server_cert_chain_expiry_timestamp", "citadel_server_cert_chain_expiry_seconds")
	if err != nil || n != 4 {
		t.Errorf("%d, %v", n, err)
	}
	families, err := reg.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		if f.GetName() == "citadel_server_root_cert_expiry_timestamp" && f.Metric[0].Gauge.GetValue() != float64(c.Bundle().NotAfter().Unix()) {
			t.Errorf("%v", f)
		}
	}
}

// TestRevocations: a server does not start with a list of revoked certificates that cannot be read. Later the last good
// one stays, with the CA beside it. A list whose time is over still counts, and is a finding, and so is one that the CA
// has not signed.
func TestRevocations(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := newRoot(t)
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		leaf, _, err := b.Sign(pki.Leaf{URI: "spiffe://cluster.local/ns/a/sa/web", Key: key.Public(), TTL: time.Hour}, time.Now())
		must.Succeed(t, err)
		revoked, err := x509.ParseCertificate(leaf)
		must.Succeed(t, err)
		list := func(by *pki.Bundle) []byte {
			t.Helper()
			f, err := by.Encode()
			must.Succeed(t, err)
			key, err := pki.ParseKey(f.Key)
			must.Succeed(t, err)
			der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
				Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
				RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: revoked.SerialNumber, RevocationTime: time.Now()}},
			}, by.Certificate, key)
			must.Succeed(t, err)
			return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
		}
		good, strange := list(b), list(newRoot(t))
		put := func(text []byte) {
			t.Helper()
			must.Succeed(t, os.WriteFile(filepath.Join(dir, "ca-crl.pem"), text, 0o600))
		}
		plug(t, dir, b)
		a, c := newAuthority(t, func(o *authority.Options) { o.Folder = dir })
		for _, text := range []string{"x", "", "\n"} {
			put([]byte(text))
			if err := a.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "ca-crl.pem") {
				t.Fatalf("with the list %q: %v", text, err)
			}
		}
		put(good)
		must.Succeed(t, a.Load(t.Context()))
		run(t, a)
		holds := func(what, finding string) {
			t.Helper()
			pass(2 * time.Second)
			if a.Revoked().Check([]*x509.Certificate{revoked, b.Certificate}) == nil {
				t.Errorf("%s: the certificate is not revoked", what)
			}
			if list := a.Findings(); (finding == "") != (len(list) == 0) || finding != "" && !strings.Contains(fmt.Sprint(list), finding) {
				t.Errorf("%s: findings %v, want %q", what, list, finding)
			}
		}
		holds("good", "")
		next := newRoot(t)
		plug(t, dir, b, b.Certificate, next.Certificate)
		holds("another root is announced", "")
		plug(t, dir, next, next.Certificate, b.Certificate)
		put([]byte("x"))
		holds("a list that cannot be read", "ca-crl.pem in")
		if !c.Bundle().Certificate.Equal(b.Certificate) {
			t.Error("the CA beside a list that cannot be read signs")
		}
		plug(t, dir, b)
		put(nil)
		holds("an empty file", "ca-crl.pem in")
		put(good)
		holds("good again", "")
		put(slices.Concat(good, strange))
		holds("another's list beside it", "number 2 is signed by no certificate of the CA")
		put(good)
		holds("good alone", "")
		time.Sleep(time.Hour)
		holds("its time is over", "a list in ca-crl.pem should have been replaced")
	})
}
