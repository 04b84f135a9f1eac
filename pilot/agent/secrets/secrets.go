package secrets

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
)

// Names of secrets in Envoy's configuration. Other names have the form file-cert:CHAIN~KEY or file-root:CAS.
const (
	Workload = "default"
	Roots    = "ROOTCA"

	fileCertificate = "file-cert:"
	fileRoots       = "file-root:"
)

// ErrPending means that a secret is not available yet. Subscribers are notified when it is.
var ErrPending = errors.New("the secret is not available yet")

// Secret is either a certificate chain with its key or a set of CA certificates. It must not be modified.
type Secret struct {
	Name       string
	Chain, Key []byte // PEM
	Roots      []byte // PEM
	Expires    time.Time
}

// Signer signs certificate requests. A ca.Client implements it.
type Signer interface {
	// Sign returns the certificate chain for a request in PEM, with the root last.
	Sign(ctx context.Context, csr []byte, ttl time.Duration) ([]string, error)
}

// Files are paths of PEM files.
type Files struct{ Chain, Key, Roots string }

// Options configure a Manager.
type Options struct {
	// Signer signs the workload's certificate. If it is nil, the certificate and the roots are read from Files.
	Signer Signer
	Files  Files
	// ID is the identity in requests: spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT. If it is empty, requests have
	// none.
	ID string
	// TTL is the requested lifetime. The default is a day.
	TTL time.Duration
	Key Key
	// Grace is the fraction of a certificate's lifetime that is left when it is renewed. It varies at random by up to
	// Jitter in both directions. The defaults are 0.5 and 0.01. An agent sets them, to SECRET_GRACE_PERIOD_RATIO and
	// SECRET_GRACE_PERIOD_RATIO_JITTER, whose defaults are in package config.
	Grace, Jitter float64
	// Output is the folder for the files key.pem, cert-chain.pem and root-cert.pem. If it is empty, none are written.
	Output string

	// Poll is the time between two checks of the clock and the files. The default is a second.
	Poll time.Duration
	// MinBackoff and MaxBackoff bound the time between two failing requests. The defaults are a second and a minute.
	MinBackoff, MaxBackoff time.Duration
	// Now is the wall clock. The default is time.Now.
	Now        func() time.Time
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Manager provides the secrets of a workload. It is safe for concurrent use.
type Manager struct {
	o       Options
	metrics metrics

	mu             sync.Mutex
	workload       *Secret
	renewAt        time.Time // by the wall clock
	issued         time.Time
	roots          []byte   // roots from the CA or from the file of roots
	addedRoots     []string // additional roots from the control plane
	rootsSecret    *Secret
	files          map[string]*file
	subscribers    map[int]func(name string)
	lastSubscriber int // ID of the last subscriber
	watch          *watchfile.Watch
	outputStale    bool // Output differs from the secrets
	outputFailed   bool // owned by the Run goroutine
}

// New returns a Manager. The error names the option that is wrong.
func New(o Options) (*Manager, error) {
	o.TTL, o.Poll = cmp.Or(o.TTL, 24*time.Hour), cmp.Or(o.Poll, time.Second)
	o.MinBackoff, o.MaxBackoff = cmp.Or(o.MinBackoff, time.Second), cmp.Or(o.MaxBackoff, time.Minute)
	o.Grace, o.Jitter, o.Log = cmp.Or(o.Grace, 0.5), cmp.Or(o.Jitter, 0.01), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Grace < 0 || o.Grace >= 1 || o.Jitter < 0 || o.Jitter >= 1 {
		return nil, fmt.Errorf("SECRET_GRACE_PERIOD_RATIO %v and its jitter %v: write numbers from 0 up to, but not including, 1, "+
			"for example 0.5 and 0.01", o.Grace, o.Jitter)
	}
	if o.Signer == nil && (o.Files.Chain == "" || o.Files.Key == "" || o.Files.Roots == "") {
		return nil, errors.New("neither a CA nor files of a certificate, a key and roots are set")
	}
	if err := o.Key.check(); err != nil {
		return nil, err
	}
	m := &Manager{o: o, files: map[string]*file{}, subscribers: map[int]func(string){}}
	m.watch = watchfile.New(watchfile.Options{Poll: o.Poll, NoWatch: true})
	m.metrics = newMetrics()
	if o.Registerer != nil {
		if err := m.metrics.register(o.Registerer, m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Subscribe calls fn with the name of each secret that changes or becomes available, until cancel is called. fn must
// not block.
func (m *Manager) Subscribe(fn func(name string)) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastSubscriber++
	id := m.lastSubscriber
	m.subscribers[id] = fn
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subscribers, id)
	}
}

// Get returns a secret without waiting. The error wraps ErrPending if the secret may become available later.
// Subscribers are notified then.
func (m *Manager) Get(name string) (*Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(name)
}

func (m *Manager) get(name string) (*Secret, error) {
	switch {
	case name == Workload && m.o.Signer != nil:
		if m.workload == nil {
			return nil, ErrPending
		}
		if !m.now().Before(m.workload.Expires) {
			return nil, fmt.Errorf("the certificate expired at %s, and the CA has not signed another: %w",
				m.workload.Expires.Format(time.RFC3339), ErrPending)
		}
		return m.workload, nil
	case name == Roots && m.o.Signer != nil:
		if m.rootsSecret == nil {
			return nil, ErrPending
		}
		return m.rootsSecret, nil
	case name == Workload:
		return m.addFile(name, m.o.Files.Chain, m.o.Files.Key, "")
	case name == Roots:
		if _, err := m.addFile(name, "", "", m.o.Files.Roots); err != nil {
			return nil, err
		}
		if m.rootsSecret == nil {
			return nil, ErrPending
		}
		return m.rootsSecret, nil
	}
	if pair, ok := strings.CutPrefix(name, fileCertificate); ok {
		chain, key, ok := strings.Cut(pair, "~")
		if !ok || chain == "" || key == "" {
			return nil, fmt.Errorf("secret %q: write %sCHAIN~KEY", name, fileCertificate)
		}
		return m.addFile(name, chain, key, "")
	}
	if path, ok := strings.CutPrefix(name, fileRoots); ok && path != "" {
		return m.addFile(name, "", "", path)
	}
	return nil, fmt.Errorf("unknown secret %q: the names are %s, %s, %sCHAIN~KEY and %sCAS", name, Workload, Roots, fileCertificate, fileRoots)
}

// SetTrust replaces the roots that are added to those of the workload's certificate. Each text is PEM. It is an
// error, and nothing changes, if a text has no valid certificate.
func (m *Manager) SetTrust(roots []string) error {
	for i, r := range roots {
		if _, err := armor.Certificates([]byte(r)); err != nil {
			return fmt.Errorf("root %d: %w", i+1, err)
		}
	}
	m.mu.Lock()
	m.addedRoots = slices.Clone(roots)
	changed := m.setRoots()
	m.mu.Unlock()
	m.notify(changed...)
	return nil
}

// ProxyConfig calls SetTrust with the roots of an encoded ProxyConfig from the control plane.
func (m *Manager) ProxyConfig(encoded []byte) error {
	c := &meshv1.ProxyConfig{}
	if err := proto.Unmarshal(encoded, c); err != nil {
		return fmt.Errorf("failed to decode a ProxyConfig: %w", err)
	}
	return m.SetTrust(c.GetCaCertificatesPem())
}

// setRoots updates the secret of roots, and returns its name if it has changed. The caller holds the lock.
func (m *Manager) setRoots() []string {
	if m.roots == nil {
		return nil
	}
	var all bytes.Buffer
	all.Write(m.roots)
	for _, r := range m.addedRoots {
		for _, certificate := range splitPEM([]byte(r)) {
			if !bytes.Contains(all.Bytes(), bytes.TrimSpace(certificate)) {
				all.Write(certificate)
			}
		}
	}
	if m.rootsSecret != nil && bytes.Equal(m.rootsSecret.Roots, all.Bytes()) {
		return nil
	}
	list, err := armor.Certificates(all.Bytes())
	if err != nil { // unreachable: each part was parsed before
		m.o.Log.Error("failed to parse the roots", "err", err)
		return nil
	}
	m.rootsSecret = &Secret{Name: Roots, Roots: all.Bytes(), Expires: earliestExpiry(list)}
	m.markOutputStale()
	return []string{Roots}
}

// notify calls the subscribers. The caller must not hold the lock.
func (m *Manager) notify(names ...string) {
	m.mu.Lock()
	list := make([]func(string), 0, len(m.subscribers))
	for _, fn := range m.subscribers {
		list = append(list, fn)
	}
	m.mu.Unlock()
	for _, name := range names {
		for _, fn := range list {
			fn(name)
		}
	}
}

// Run renews the certificate and watches files until ctx ends. It returns an error if renewal panics.
func (m *Manager) Run(ctx context.Context) error {
	var signing sync.WaitGroup
	var failure error // set before signing is done
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if m.o.Signer != nil {
		signing.Add(1)
		safe.Go(m.o.Log, "certificates", func() {
			defer signing.Done()
			defer cancel()
			failure = safe.Do("certificates", func() { m.sign(ctx) })
		})
	}
	if m.o.Signer == nil {
		_, _ = m.Get(Workload)
		_, _ = m.Get(Roots)
	}
	for m.watch.Next(ctx, 0) {
		m.readFiles()
		m.writeOutput()
	}
	signing.Wait()
	return failure
}

// sign gets certificates signed when they are due, one at a time.
func (m *Manager) sign(ctx context.Context) {
	t := time.NewTicker(m.o.Poll)
	defer t.Stop()
	wait, failures := time.Duration(0), 0
	for {
		switch wait -= m.o.Poll; {
		case wait > 0 || !m.due():
		default:
			err := m.renew(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				wait, failures = 0, 0
				break
			}
			failures++
			wait = m.backoff(failures)
			m.logFailure(err, failures, wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// maxBackoffAtStart bounds the backoff while there is no certificate.
const maxBackoffAtStart = 10 * time.Second

// backoff returns the time to wait after a number of failures in a row. It doubles with each failure and half of it
// is random. It is at most a twentieth of the certificate's lifetime, so that a short-lived certificate is retried
// several times before it expires.
func (m *Manager) backoff(failures int) time.Duration {
	limit := m.o.MaxBackoff
	m.mu.Lock()
	if m.workload == nil { // the pod waits for its first certificate
		limit = min(limit, maxBackoffAtStart)
	} else {
		limit = min(limit, max(m.o.MinBackoff, m.workload.Expires.Sub(m.issued)/20))
	}
	m.mu.Unlock()
	d := limit
	if failures < 16 {
		d = min(limit, m.o.MinBackoff<<(failures-1))
	}
	return d/2 + rand.N(d/2+1)
}

// logFailure logs a failure to renew: the first, the second, the fourth, and so on. It is an error if there is no
// valid certificate left.
func (m *Manager) logFailure(err error, failures int, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if failures&(failures-1) != 0 {
		return
	}
	switch {
	case m.workload == nil:
		m.o.Log.Warn("failed to get the first certificate", "err", err, "failures", failures, "retry", wait)
	case !m.now().Before(m.workload.Expires):
		m.o.Log.Error("the certificate has expired and could not be renewed: connections to this workload fail",
			"ended", m.workload.Expires, "err", err, "failures", failures, "retry", wait)
	default:
		m.o.Log.Warn("failed to renew the certificate: it stays in use until it expires",
			"ends", m.workload.Expires, "err", err, "failures", failures, "retry", wait)
	}
}

// due reports whether a certificate must be signed now. That includes a certificate that is not valid yet, because
// the clock was set back.
func (m *Manager) due() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	return m.workload == nil || !now.Before(m.renewAt) || now.Before(m.issued.Add(-backdated))
}

// now returns the wall clock without the monotonic clock, which ignores that the wall clock is set.
func (m *Manager) now() time.Time { return m.o.Now().Round(0) }

// backdated is how long before the time of issue certificates of most CAs are valid.
const backdated = 2 * time.Minute

// renew gets a certificate signed for a new key.
func (m *Manager) renew(ctx context.Context) error {
	key, csr, err := m.o.Key.request(m.o.ID)
	if err != nil {
		return err
	}
	certificates, err := m.o.Signer.Sign(ctx, csr, m.o.TTL)
	if err != nil {
		return err
	}
	if len(certificates) < 2 {
		return errors.New("the CA returned no root")
	}
	chain, roots := armor.Join(certificates[:len(certificates)-1]), []byte(certificates[len(certificates)-1])
	leaf, err := checkPair(chain, key)
	if err != nil {
		return fmt.Errorf("the CA returned an unusable certificate: %w", err)
	}
	if _, err := armor.Certificates(roots); err != nil {
		return fmt.Errorf("the CA returned unusable roots: %w", err)
	}
	now := m.now()
	if !now.Before(leaf.NotAfter) {
		return fmt.Errorf("the CA returned a certificate that expired at %s: check the clocks of this host and of the CA",
			leaf.NotAfter.Format(time.RFC3339))
	}
	lifetime := leaf.NotAfter.Sub(now)
	remaining := min(1, max(0, m.o.Grace+m.o.Jitter*(2*rand.Float64()-1)))
	m.mu.Lock()
	m.workload = &Secret{Name: Workload, Chain: chain, Key: key, Expires: leaf.NotAfter}
	m.issued, m.renewAt, m.roots = now, now.Add(time.Duration(float64(lifetime)*(1-remaining))), roots
	changed := append([]string{Workload}, m.setRoots()...)
	m.markOutputStale()
	m.o.Log.Info("got a certificate for the workload", "ends", leaf.NotAfter, "renewed", m.renewAt)
	m.mu.Unlock()
	m.notify(changed...)
	return nil
}
