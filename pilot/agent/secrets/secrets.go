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

// Names of secrets, as configuration of Envoy has them. The other names are file-cert:CHAIN~KEY and file-root:CAS.
const (
	Workload = "default"
	Roots    = "ROOTCA"

	fileCertificate = "file-cert:"
	fileRoots       = "file-root:"
)

// ErrPending means that a secret is not there yet. Subscribers are told when it is.
var ErrPending = errors.New("the secret is not there yet")

// Secret is one secret, which is not changed. It has a chain with its key, or CA certificates.
type Secret struct {
	Name       string
	Chain, Key []byte // PEM
	Roots      []byte // PEM
	Expires    time.Time
}

// Signer signs requests: see package ca.
type Signer interface {
	// Sign returns the chain of a certificate for a request in PEM, its roots last.
	Sign(ctx context.Context, csr []byte, life time.Duration) ([]string, error)
}

// Files are paths of PEM files.
type Files struct{ Chain, Key, Roots string }

// Options of a Manager.
type Options struct {
	// Signer signs the workload's certificate. Without one, the certificate and the roots are those of Files.
	Signer Signer
	Files  Files
	ID     string        // spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT, which requests name; empty: they name nobody
	Life   time.Duration // that is asked for; 0: a day
	Key    Key
	// Grace is the part of a certificate's life that is left when it is renewed; 0: a half. Jitter is by how much that
	// differs at random, up and down; 0: a hundredth.
	Grace, Jitter float64
	// Output is a folder that takes key.pem, cert-chain.pem and root-cert.pem; empty: none does.
	Output string

	Poll        time.Duration    // between two looks at the clock and at files; 0: a second
	Retry, Most time.Duration    // the first wait after a failure, and the longest; 0: a second, and a minute
	Now         func() time.Time // the wall clock; nil: time.Now
	Registerer  prometheus.Registerer
	Log         *slog.Logger
}

// Manager keeps secrets. It is safe for concurrent use.
type Manager struct {
	o       Options
	metrics metrics

	mu           sync.Mutex
	workload     *Secret
	renewAt      time.Time // by the wall clock
	issued       time.Time
	roots        []byte   // that came with the workload's certificate
	trusted      []string // more roots, by the control plane
	rootCAs      *Secret
	files        map[string]*file
	subscribers  map[int]func(name string)
	next         int
	watch        *watchfile.Watch
	unwritten    bool // Output does not have the latest
	outputFailed bool // owned by Run
}

// New returns a Manager. An error names the option that is wrong.
func New(o Options) (*Manager, error) {
	o.Life, o.Poll, o.Retry, o.Most = cmp.Or(o.Life, 24*time.Hour), cmp.Or(o.Poll, time.Second), cmp.Or(o.Retry, time.Second), cmp.Or(o.Most, time.Minute)
	o.Grace, o.Jitter, o.Log = cmp.Or(o.Grace, 0.5), cmp.Or(o.Jitter, 0.01), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Grace < 0 || o.Grace >= 1 || o.Jitter < 0 || o.Jitter >= 1 {
		return nil, fmt.Errorf("SECRET_GRACE_PERIOD_RATIO %v and its jitter %v: write numbers from 0 to below 1, for example 0.5 and 0.01", o.Grace, o.Jitter)
	}
	if o.Signer == nil && (o.Files.Chain == "" || o.Files.Key == "" || o.Files.Roots == "") {
		return nil, errors.New("neither a CA nor files of certificate, key and roots")
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

// Subscribe has fn called with the name of each secret that changes, or that is there for the first time, until cancel
// is called. fn must not block.
func (m *Manager) Subscribe(fn func(name string)) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	id := m.next
	m.subscribers[id] = fn
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subscribers, id)
	}
}

// Get returns a secret that is there, without waiting. The error is ErrPending, or says why a file cannot be used; a
// subscriber is told when it can.
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
			return nil, fmt.Errorf("the certificate ended at %s, and the CA has signed no other: %w", m.workload.Expires.Format(time.RFC3339), ErrPending)
		}
		return m.workload, nil
	case name == Roots && m.o.Signer != nil:
		if m.rootCAs == nil {
			return nil, ErrPending
		}
		return m.rootCAs, nil
	case name == Workload:
		return m.addFile(name, m.o.Files.Chain, m.o.Files.Key, "")
	case name == Roots:
		if _, err := m.addFile(name, "", "", m.o.Files.Roots); err != nil {
			return nil, err
		}
		if m.rootCAs == nil {
			return nil, ErrPending
		}
		return m.rootCAs, nil
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
	return nil, fmt.Errorf("secret %q: an agent has %s, %s, %sCHAIN~KEY and %sCAS", name, Workload, Roots, fileCertificate, fileRoots)
}

// SetTrust adds roots to those that come with the workload's certificate, in the place of those that it added before.
// Each text is PEM. A text without any usable certificate is an error, and changes nothing.
func (m *Manager) SetTrust(roots []string) error {
	for i, r := range roots {
		if _, err := armor.Certificates([]byte(r)); err != nil {
			return fmt.Errorf("root %d: %w", i+1, err)
		}
	}
	m.mu.Lock()
	m.trusted = slices.Clone(roots)
	changed := m.setRoots()
	m.mu.Unlock()
	m.tell(changed...)
	return nil
}

// ProxyConfig is SetTrust with the roots of an encoded ProxyConfig, which the control plane sends.
func (m *Manager) ProxyConfig(encoded []byte) error {
	c := &meshv1.ProxyConfig{}
	if err := proto.Unmarshal(encoded, c); err != nil {
		return fmt.Errorf("decode a ProxyConfig: %w", err)
	}
	return m.SetTrust(c.GetCaCertificatesPem())
}

// setRoots makes the secret of roots anew, and returns its name if it changed. The caller holds the lock.
func (m *Manager) setRoots() []string {
	if m.roots == nil {
		return nil
	}
	var all bytes.Buffer
	all.Write(m.roots)
	for _, r := range m.trusted {
		for _, one := range splitPEM([]byte(r)) {
			if !bytes.Contains(all.Bytes(), bytes.TrimSpace(one)) {
				all.Write(one)
			}
		}
	}
	if m.rootCAs != nil && bytes.Equal(m.rootCAs.Roots, all.Bytes()) {
		return nil
	}
	list, err := armor.Certificates(all.Bytes())
	if err != nil { // each part has been parsed
		m.o.Log.Error("the roots cannot be used", "err", err)
		return nil
	}
	m.rootCAs = &Secret{Name: Roots, Roots: all.Bytes(), Expires: firstEnd(list)}
	m.write()
	return []string{Roots}
}

// tell calls the subscribers. The caller does not hold the lock.
func (m *Manager) tell(names ...string) {
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

// Run has certificates signed and follows files until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	var signing sync.WaitGroup
	var failure error // of signing
	ctx, end := context.WithCancel(ctx)
	defer end()
	if m.o.Signer != nil {
		signing.Add(1)
		safe.Go(m.o.Log, "certificates", func() {
			defer signing.Done()
			defer end()
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

// sign has certificates signed when they are due, one at a time.
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
			wait = m.pause(failures)
			m.failed(err, failures, wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// mostAtStart is the longest wait while there is no certificate at all.
const mostAtStart = 10 * time.Second

// pause returns how long to wait after so many failures: longer each time, with half of it at random, and never so long
// that a certificate of short life is not tried for several times in what is left of it.
func (m *Manager) pause(failures int) time.Duration {
	most := m.o.Most
	m.mu.Lock()
	if m.workload == nil { // a pod waits
		most = min(most, mostAtStart)
	} else {
		most = min(most, max(m.o.Retry, m.workload.Expires.Sub(m.issued)/20))
	}
	m.mu.Unlock()
	d := most
	if failures < 16 {
		d = min(most, m.o.Retry<<(failures-1))
	}
	return d/2 + rand.N(d/2+1)
}

// failed says that no certificate was signed: the first time, then each time that the number of failures has doubled,
// and as an error once there is none that could be handed out.
func (m *Manager) failed(err error, failures int, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if failures&(failures-1) != 0 {
		return
	}
	switch {
	case m.workload == nil:
		m.o.Log.Warn("no certificate yet", "err", err, "failures", failures, "retry", wait)
	case !m.now().Before(m.workload.Expires):
		m.o.Log.Error("the certificate has ended and could not be renewed: connections to this workload fail", "ended", m.workload.Expires, "err", err, "failures", failures, "retry", wait)
	default:
		m.o.Log.Warn("the certificate could not be renewed, and is used until it ends", "ends", m.workload.Expires, "err", err, "failures", failures, "retry", wait)
	}
}

// due reports whether a certificate is to be signed now. One that is not valid yet is renewed too: then the clock was
// set back.
func (m *Manager) due() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	return m.workload == nil || !now.Before(m.renewAt) || now.Before(m.issued.Add(-backdated))
}

// now returns the time of the wall clock alone: that of time.Now goes on as before when the clock is set.
func (m *Manager) now() time.Time { return m.o.Now().Round(0) }

// backdated is how long before they are made certificates begin to be valid, by most CAs.
const backdated = 2 * time.Minute

// renew has a certificate signed, for a new key.
func (m *Manager) renew(ctx context.Context) error {
	key, csr, err := m.o.Key.request(m.o.ID)
	if err != nil {
		return err
	}
	texts, err := m.o.Signer.Sign(ctx, csr, m.o.Life)
	if err != nil {
		return err
	}
	if len(texts) < 2 {
		return errors.New("the CA answers with no chain")
	}
	chain, roots := armor.Join(texts[:len(texts)-1]), []byte(texts[len(texts)-1])
	leaf, err := checkPair(chain, key)
	if err != nil {
		return fmt.Errorf("the CA answers with a certificate that cannot be used: %w", err)
	}
	if _, err := armor.Certificates(roots); err != nil {
		return fmt.Errorf("the CA answers with roots that cannot be used: %w", err)
	}
	now := m.now()
	if !now.Before(leaf.NotAfter) {
		return fmt.Errorf("the CA answers with a certificate that ended at %s: is the clock right?", leaf.NotAfter.Format(time.RFC3339))
	}
	life := leaf.NotAfter.Sub(now)
	part := min(1, max(0, m.o.Grace+m.o.Jitter*(2*rand.Float64()-1)))
	m.mu.Lock()
	m.workload = &Secret{Name: Workload, Chain: chain, Key: key, Expires: leaf.NotAfter}
	m.issued, m.renewAt, m.roots = now, now.Add(time.Duration(float64(life)*(1-part))), roots
	changed := append([]string{Workload}, m.setRoots()...)
	m.write()
	m.o.Log.Info("the workload has a certificate", "ends", leaf.NotAfter, "renewed", m.renewAt)
	m.mu.Unlock()
	m.tell(changed...)
	return nil
}
