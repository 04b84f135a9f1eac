package secrets

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const poll = time.Millisecond

// clock is a wall clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now().Round(time.Second)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// authority is a fake CA with failures and roots that a test sets.
type authority struct {
	t     testing.TB
	clock *clock
	life  time.Duration // lifetime of its certificates; 0 means the requested one

	mu    sync.Mutex
	key   *ecdsa.PrivateKey
	root  *x509.Certificate
	down  error
	calls int
	other *ecdsa.PublicKey // certified in place of the request's key
	asked chan struct{}    // has an element if there was a call since the last receive
	last  *x509.CertificateRequest
	csr   []byte
}

func newAuthority(t testing.TB, c *clock) *authority {
	a := &authority{t: t, clock: c, asked: make(chan struct{}, 1)}
	a.rotate()
	return a
}

// newWorld returns a clock, and an authority that uses it.
func newWorld(t testing.TB) (*clock, *authority) {
	t.Helper()
	c := newClock()
	return c, newAuthority(t, c)
}

func (a *authority) rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(a.t, err)
	now := a.clock.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	must.Succeed(a.t, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.key = key
	if a.root, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
}

func (a *authority) rootPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw}))
}

// sign makes the authority certify the keys of requests, with the requested lifetime if life is 0. It returns the
// number of calls.
func (a *authority) sign(life time.Duration) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.other, a.life = nil, life
	return a.calls
}

// count returns the number of calls.
func (a *authority) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func (a *authority) Sign(_ context.Context, csr []byte, life time.Duration) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		select {
		case a.asked <- struct{}{}:
		default:
		}
	}()
	a.calls++
	if a.down != nil {
		return nil, a.down
	}
	block, _ := pem.Decode(csr)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, err
	}
	a.last, a.csr = r, csr
	if a.life != 0 {
		life = a.life
	}
	now := a.clock.Now()
	public := r.PublicKey
	if a.other != nil {
		public = a.other
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(int64(a.calls) + 1), URIs: r.URIs, NotBefore: now.Add(-2 * time.Minute),
		NotAfter: now.Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.root, public, a.key)
	if err != nil {
		return nil, err
	}
	return []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), a.rootPEM()}, nil
}

// start runs a manager until the test ends.
func start(t testing.TB, o Options) *Manager {
	t.Helper()
	o.Poll = poll
	if o.MinBackoff == 0 {
		o.MinBackoff, o.MaxBackoff = poll, 4*poll
	}
	m, err := New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m
}

// until waits for a condition. It fails only after a time that is far too long.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(poll) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// get waits for a secret and returns it.
func get(t testing.TB, m *Manager, name string) *Secret {
	t.Helper()
	changed := make(chan struct{}, 1)
	defer m.Subscribe(func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for {
		s, err := m.Get(name)
		if err == nil {
			return s
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-changed:
		}
	}
}

const id = "spiffe://cluster.local/ns/a/sa/web"

func TestCertificate(t *testing.T) {
	c, a := newWorld(t)
	m := start(t, Options{Signer: a, ID: id, Now: c.Now})
	var both sync.WaitGroup
	for range 20 {
		both.Go(func() { get(t, m, Workload) })
	}
	both.Wait()
	if n := a.count(); n != 1 {
		t.Errorf("%d certificates for 20 who ask", n)
	}
	s := get(t, m, Workload)
	pair, err := tls.X509KeyPair(s.Chain, s.Key)
	must.Succeed(t, err)
	if u := pair.Leaf.URIs; len(u) != 1 || u[0].String() != id {
		t.Errorf("the certificate is that of %v", u)
	}
	if got := string(get(t, m, Roots).Roots); got != a.rootPEM() {
		t.Errorf("roots %s", got)
	}
	if _, err := m.Get("other"); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a secret that no agent has: %v", err)
	}
}

func TestKeys(t *testing.T) {
	for want, k := range map[string]Key{
		"EC PRIVATE KEY": {}, "RSA PRIVATE KEY": {RSA: 2048}, "PRIVATE KEY": {Curve: "P384", PKCS8: true},
	} {
		key, csr, err := k.request(id)
		must.Succeed(t, err)
		block, _ := pem.Decode(key)
		request, _ := pem.Decode(csr)
		r, err := x509.ParseCertificateRequest(request.Bytes)
		if err != nil || r.CheckSignature() != nil || len(r.URIs) != 1 || block.Type != want {
			t.Errorf("%+v: %s, %v, %v", k, block.Type, r, err)
		}
		switch public := r.PublicKey.(type) {
		case *rsa.PublicKey:
			if public.N.BitLen() != k.RSA {
				t.Errorf("%+v: %d bits", k, public.N.BitLen())
			}
		case *ecdsa.PublicKey:
			if k.RSA != 0 || (public.Curve == elliptic.P384()) != (k.Curve == "P384") {
				t.Errorf("%+v: %s", k, public.Params().Name)
			}
		}
	}
	for _, k := range []Key{{RSA: 1024}, {RSA: 16384}, {Curve: "P224"}} {
		if _, err := New(Options{Signer: &authority{}, Key: k}); err == nil {
			t.Errorf("%+v is taken", k)
		}
	}
	for _, o := range []Options{{}, {Signer: &authority{}, Grace: 1}, {Signer: &authority{}, Jitter: -1},
		{Files: Files{Chain: "c", Key: "k"}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestRenewal checks that a certificate is renewed at half of its lifetime, plus or minus a hundredth, and whenever
// the clock jumps past that, forward or back.
func TestRenewal(t *testing.T) {
	c, a := newWorld(t)
	m := start(t, Options{Signer: a, TTL: 100 * time.Minute, Now: c.Now})
	first := get(t, m, Workload)
	c.move(48 * time.Minute)
	for range 20 { // checks of the clock
		m.mu.Lock()
		at := m.renewAt.Sub(m.issued)
		m.mu.Unlock()
		if at < 49*time.Minute || at > 51*time.Minute {
			t.Fatalf("renewed after %s of 100m", at)
		}
		if m.due() {
			t.Fatal("renewed before half of its life")
		}
		time.Sleep(poll)
	}
	if n := a.count(); n != 1 {
		t.Fatalf("%d certificates before half of the life", n)
	}
	c.move(4 * time.Minute)
	until(t, "a second certificate", func() bool { return get(t, m, Workload) != first })
	second := get(t, m, Workload)
	if bytes.Equal(second.Key, first.Key) {
		t.Error("the key is that of before")
	}
	c.move(-time.Hour)
	until(t, "a certificate that is valid by a clock that was set back", func() bool { return get(t, m, Workload) != second })
	third := get(t, m, Workload)
	c.move(24 * time.Hour) // as after a machine slept
	until(t, "a certificate after the end of the last", func() bool {
		s, err := m.Get(Workload)
		return err == nil && s != third && s.Expires.After(c.Now())
	})
}

// TestOutage checks that, while the CA is down, the old certificate is used until it expires and not longer, and that
// a new one is used when the CA is back.
func TestOutage(t *testing.T) {
	c, a := newWorld(t)
	r := prometheus.NewRegistry()
	m := start(t, Options{Signer: a, TTL: time.Hour, Now: c.Now, Registerer: r})
	first := get(t, m, Workload)
	a.fail(errors.New("away"))
	c.move(31 * time.Minute)
	until(t, "several attempts", func() bool { return a.count() > 4 })
	if s, err := m.Get(Workload); err != nil || s != first {
		t.Errorf("during the outage there is %v, %v", s, err)
	}
	c.move(30 * time.Minute)
	if _, err := m.Get(Workload); err == nil || !errors.Is(err, ErrPending) {
		t.Errorf("a certificate that has ended is handed out: %v", err)
	}
	if err := testutil.GatherAndCompare(r,
		strings.NewReader("# HELP istio_agent_cert_expiry_seconds Seconds until a certificate expires; negative afterwards.\n"+
			"# TYPE istio_agent_cert_expiry_seconds gauge\n"+
			`istio_agent_cert_expiry_seconds{resource_name="ROOTCA"} 3.59634e+06`+"\n"+
			`istio_agent_cert_expiry_seconds{resource_name="default"} -60`+"\n"), "istio_agent_cert_expiry_seconds"); err != nil {
		t.Error(err)
	}
	a.fail(nil)
	until(t, "a certificate once the CA is back", func() bool { s, err := m.Get(Workload); return err == nil && s != first })
}

// TestPauses checks that the backoff grows, but not so far that a short-lived certificate expires.
func TestPauses(t *testing.T) {
	m, err := New(Options{Signer: &authority{}, MinBackoff: time.Second, MaxBackoff: time.Minute})
	must.Succeed(t, err)
	for failures, most := range map[int]time.Duration{1: time.Second, 3: 4 * time.Second, 10: maxBackoffAtStart, 1000: maxBackoffAtStart} {
		for range 100 {
			if d := m.backoff(failures); d < most/2 || d > most {
				t.Fatalf("%s after %d failures", d, failures)
			}
		}
	}
	m.workload, m.issued = &Secret{Expires: time.Now().Add(24 * time.Hour)}, time.Now()
	if d := m.backoff(1000); d < time.Minute/2 {
		t.Errorf("%s between attempts to renew a certificate of a day", d)
	}
	m.workload, m.issued = &Secret{Expires: time.Now().Add(time.Minute)}, time.Now()
	if d := m.backoff(1000); d > 3*time.Second {
		t.Errorf("%s between attempts to renew a certificate of one minute", d)
	}
}

// TestUnusableAnswers checks that expired certificates, and certificates for other keys, are rejected.
func TestUnusableAnswers(t *testing.T) {
	c, a := newWorld(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	a.other = &key.PublicKey
	m := start(t, Options{Signer: a, Now: c.Now})
	until(t, "an attempt", func() bool { return a.count() > 2 })
	if s, err := m.Get(Workload); err == nil {
		t.Errorf("a certificate of another key is handed out: %v", s)
	}
	n := a.sign(-time.Second)
	until(t, "another attempt", func() bool { return a.count() > n+2 })
	if _, err := m.Get(Workload); err == nil {
		t.Error("a certificate that has ended is handed out")
	}
	a.sign(0)
	good := get(t, m, Workload)
	n = a.sign(-time.Second)
	c.move(good.Expires.Sub(c.Now()) * 9 / 10) // time to renew it
	until(t, "a renewal", func() bool { return a.count() > n+2 })
	if s, err := m.Get(Workload); err != nil || !s.Expires.Equal(good.Expires) {
		t.Errorf("a certificate that has ended takes the place of a good one: %v, %v", s, err)
	}
}

func TestRoots(t *testing.T) {
	c, a := newWorld(t)
	m := start(t, Options{Signer: a, TTL: time.Hour, Now: c.Now})
	first := get(t, m, Roots)
	var told atomic.Int32
	defer m.Subscribe(func(name string) {
		if name == Roots {
			told.Add(1)
		}
	})()
	cert := get(t, m, Workload)
	c.move(40 * time.Minute)
	until(t, "a renewal", func() bool { return get(t, m, Workload) != cert })
	if get(t, m, Roots) != first || told.Load() != 0 {
		t.Error("roots that are the same are told")
	}
	other := newAuthority(t, c)
	encoded, err := proto.Marshal(&meshv1.ProxyConfig{CaCertificatesPem: []string{other.rootPEM(), a.rootPEM()}})
	must.Succeed(t, err)
	must.Succeed(t, m.ProxyConfig(encoded))
	if got := string(get(t, m, Roots).Roots); got != a.rootPEM()+other.rootPEM() || told.Load() != 1 {
		t.Errorf("told %d times: %s", told.Load(), got)
	}
	if err := m.SetTrust([]string{a.rootPEM(), "junk"}); err == nil || !strings.Contains(err.Error(), "root 2") {
		t.Errorf("junk is taken for roots: %v", err)
	}
	if got := string(get(t, m, Roots).Roots); got != a.rootPEM()+other.rootPEM() {
		t.Errorf("after junk: %s", got)
	}
	if m.ProxyConfig([]byte{1}) == nil {
		t.Error("junk is taken for a ProxyConfig")
	}
	if err := m.SetTrust(nil); err != nil || string(get(t, m, Roots).Roots) != a.rootPEM() {
		t.Errorf("roots that are no longer trusted stay: %v", err)
	}
	a.rotate()
	c.move(40 * time.Minute)
	until(t, "the new root", func() bool { return string(get(t, m, Roots).Roots) == a.rootPEM() })
}

// write replaces a set of files as Kubernetes does, with a new folder and one replaced symbolic link.
func write(t *testing.T, dir, generation string, files map[string]string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, generation), 0o755))
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, generation, name), []byte(text), 0o600))
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			must.Succeed(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
		}
	}
	must.Succeed(t, os.Symlink(generation, filepath.Join(dir, "..tmp")))
	must.Succeed(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
}

// pair returns a chain, its key and its root of a CA.
func pair(t *testing.T, a *authority) map[string]string {
	t.Helper()
	key, csr, err := Key{}.request(id)
	must.Succeed(t, err)
	chain, err := a.Sign(t.Context(), csr, time.Hour)
	must.Succeed(t, err)
	return map[string]string{"cert-chain.pem": chain[0], "key.pem": string(key), "root-cert.pem": chain[1]}
}

func TestFiles(t *testing.T) {
	c, a := newWorld(t)
	dir := t.TempDir()
	one, two := pair(t, a), pair(t, a)
	path := func(name string) string { return filepath.Join(dir, name) }
	r := prometheus.NewRegistry()
	out := t.TempDir()
	m := start(t, Options{Files: Files{path("cert-chain.pem"), path("key.pem"), path("root-cert.pem")}, Now: c.Now, Registerer: r,
		Output: out})
	if _, err := m.Get(Workload); !errors.Is(err, ErrPending) {
		t.Errorf("without files: %v", err)
	}
	write(t, dir, "1", one)
	if s := get(t, m, Workload); string(s.Chain) != one["cert-chain.pem"] || string(s.Key) != one["key.pem"] {
		t.Error("not the files")
	}
	if s := get(t, m, Roots); string(s.Roots) != one["root-cert.pem"] {
		t.Error("not the roots of the files")
	}
	byName := fileCertificate + path("cert-chain.pem") + "~" + path("key.pem")
	if s := get(t, m, byName); string(s.Chain) != one["cert-chain.pem"] || s.Name != byName {
		t.Error("not the files by their names")
	}
	if s := get(t, m, fileRoots+path("root-cert.pem")); string(s.Roots) != one["root-cert.pem"] {
		t.Error("not the roots by their name")
	}

	broken := map[string]string{"cert-chain.pem": two["cert-chain.pem"], "key.pem": one["key.pem"], "root-cert.pem": "torn"}
	before := testutil.ToFloat64(m.metrics.fileFailures)
	write(t, dir, "2", broken)
	until(t, "the torn files are counted", func() bool { return testutil.ToFloat64(m.metrics.fileFailures) == before+4 })
	for range 20 { // checks of files that are still torn
		m.readFiles()
		until(t, "the look has ended", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, f := range m.files {
				if f.reading {
					return false
				}
			}
			return true
		})
	}
	if n := testutil.ToFloat64(m.metrics.fileFailures); n != before+4 {
		t.Errorf("%g failures are counted of 4", n-before)
	}
	if s := get(t, m, Workload); string(s.Key) != one["key.pem"] {
		t.Error("a key is handed out with another certificate")
	}
	write(t, dir, "3", two)
	until(t, "the new certificate", func() bool { return string(get(t, m, Workload).Chain) == two["cert-chain.pem"] })
	until(t, "the new certificate by its name", func() bool { return string(get(t, m, byName).Chain) == two["cert-chain.pem"] })
	until(t, "the new certificate in the output", func() bool {
		text, err := os.ReadFile(filepath.Join(out, outputChain))
		return err == nil && string(text) == two["cert-chain.pem"]
	})
	for _, name := range []string{"file-cert:", "file-cert:a", "file-cert:~b", "file-root:"} {
		if _, err := m.Get(name); err == nil || errors.Is(err, ErrPending) {
			t.Errorf("%s: %v", name, err)
		}
	}
	until(t, "what is wrong with a file that is not there", func() bool {
		_, err := m.Get("file-root:" + path("absent"))
		return errors.Is(err, ErrPending) && errors.Is(err, os.ErrNotExist)
	})
}

// TestFileHangs checks that a file whose read hangs does not delay other secrets.
func TestFileHangs(t *testing.T) {
	c, a := newWorld(t)
	dir, out := t.TempDir(), t.TempDir()
	hanging := filepath.Join(dir, "hanging.pem")
	must.Succeed(t, syscall.Mkfifo(hanging, 0o600))
	t.Cleanup(func() { // ends the reader, after the Manager has ended
		w, err := os.OpenFile(hanging, os.O_WRONLY, 0)
		must.Succeed(t, err)
		_ = w.Close()
	})
	m := start(t, Options{Signer: a, TTL: time.Hour, Now: c.Now, Output: out})
	if _, err := m.Get(fileRoots + hanging); !errors.Is(err, ErrPending) {
		t.Errorf("a file that is being read: %v", err)
	}
	one, two := pair(t, a), pair(t, a)
	write(t, dir, "1", one)
	name := fileCertificate + filepath.Join(dir, "cert-chain.pem") + "~" + filepath.Join(dir, "key.pem")
	get(t, m, name)
	write(t, dir, "2", two)
	until(t, "the new files", func() bool { return string(get(t, m, name).Chain) == two["cert-chain.pem"] })
	first := get(t, m, Workload)
	c.move(40 * time.Minute)
	until(t, "a renewal", func() bool { return get(t, m, Workload) != first })
}

// TestOutput checks that the output files match each other at each moment, over many renewals, even if the folder had
// files before, and that they stay intact when the disk is full.
func TestOutput(t *testing.T) {
	c, a := newWorld(t)
	out := filepath.Join(t.TempDir(), "certs")
	must.Succeed(t, os.Mkdir(out, 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(out, outputKey), []byte("of another agent"), 0o600))
	m := start(t, Options{Signer: a, TTL: time.Hour, Now: c.Now, Output: out})
	read := func() (*tls.Certificate, error) {
		at, err := filepath.EvalSymlinks(filepath.Join(out, currentLink))
		if err != nil {
			return nil, err
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(at, outputChain), filepath.Join(at, outputKey))
		return &pair, err
	}
	written := func() bool {
		pair, err := tls.LoadX509KeyPair(filepath.Join(out, outputChain), filepath.Join(out, outputKey))
		return err == nil && bytes.Contains(get(t, m, Workload).Chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}))
	}
	until(t, "the files", written)
	for range 10 {
		last := get(t, m, Workload)
		c.move(40 * time.Minute)
		for get(t, m, Workload) == last {
			if _, err := read(); err != nil && !errors.Is(err, os.ErrNotExist) { // the previous folder is gone
				t.Fatal(err)
			}
		}
	}
	until(t, "the last files", written)
	if i, err := os.Stat(filepath.Join(out, outputKey)); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", i.Mode(), err)
	}
	left := func() int {
		all, err := os.ReadDir(out)
		must.Succeed(t, err)
		return len(all)
	}
	until(t, "one folder", func() bool { return left() == 5 })
	before, err := read()
	must.Succeed(t, err)
	s, roots := get(t, m, Workload), get(t, m, Roots)
	large := &Secret{Chain: append(bytes.Clone(s.Chain), make([]byte, 2*room)...), Key: s.Key}
	if err := full(t, func() error { return replaceOutput(out, large, roots) }); !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("on a disk without room: %v", err)
	}
	after, err := read()
	if err != nil || !before.Leaf.Equal(after.Leaf) || left() != 5 {
		t.Errorf("a disk without room leaves %d entries, %v", left(), err)
	}
}

// room is the maximum size of files on a full disk. It is larger than the files that the go command lets tests write.
const room = 1 << 20

// full calls fn while files cannot be larger than room.
func full(t *testing.T, fn func() error) error {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	must.Succeed(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	less := was
	less.Cur = room
	must.Succeed(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &less))
	err := fn()
	if reset := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); reset != nil {
		t.Fatal(reset)
	}
	return err
}

// panicking is a Signer that panics.
type panicking struct{}

func (panicking) Sign(context.Context, []byte, time.Duration) ([]string, error) { panic("of a test") }

// TestPanic checks that a Manager that can no longer sign returns an error.
func TestPanic(t *testing.T) {
	m, err := New(Options{Signer: panicking{}})
	must.Succeed(t, err)
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "of a test") {
		t.Error(err)
	}
}

// TestManyFiles checks that the number of files is limited, and that files without followers are dropped first.
func TestManyFiles(t *testing.T) {
	m, err := New(Options{Signer: &authority{}})
	must.Succeed(t, err)
	var names []string
	for i := range maxFiles {
		names = append(names, fmt.Sprint(fileRoots, "/nowhere/", i))
	}
	cancel := m.Follow(names)
	again := m.Follow(names[:1])
	one := fileRoots + "/nowhere"
	if _, err := m.Get(one); err == nil || errors.Is(err, ErrPending) {
		t.Errorf("one more: %v", err)
	}
	cancel()
	if n := len(m.files); n != 1 {
		t.Errorf("%d files are left of one", n)
	}
	again()
	for _, name := range names {
		if _, err := m.Get(name); !errors.Is(err, ErrPending) {
			t.Fatal(err)
		}
	}
	if _, err := m.Get(one); !errors.Is(err, ErrPending) {
		t.Errorf("none of those that nobody follows makes room: %v", err)
	}
}

// TestOutputOfAGroup checks that the group of a setgid folder may read the key.
func TestOutputOfAGroup(t *testing.T) {
	out := t.TempDir()
	must.Succeed(t, os.Chmod(out, 0o770|os.ModeSetgid))
	files := pair(t, newAuthority(t, newClock()))
	s, roots := &Secret{Chain: []byte(files["cert-chain.pem"]), Key: []byte(files["key.pem"])}, &Secret{Roots: []byte(files["root-cert.pem"])}
	must.Succeed(t, replaceOutput(out, s, roots))
	for name, want := range map[string]os.FileMode{outputKey: 0o640, currentLink: os.ModeDir | os.ModeSetgid | 0o755} {
		if i, err := os.Stat(filepath.Join(out, name)); err != nil || i.Mode() != want {
			t.Errorf("%s is %v, %v; want %v", name, i.Mode(), err, want)
		}
	}
}
