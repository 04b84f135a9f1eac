package authority

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/citadel/store"
)

// Options of an Authority.
type Options struct {
	CA *ca.CA
	// Elsewhere is true if other systems issue the certificates. Then CA stays empty.
	Elsewhere bool
	// Sign returns a certificate of the server's own names that another issuer signs. It is nil if the CA signs.
	Sign func(ctx context.Context, names []string, key crypto.Signer, ttl time.Duration) (*ca.Issued, error)
	// Anchors returns further roots that callers may be verified by, besides the roots of the CA. Optional.
	Anchors func() []*x509.Certificate

	Folder    string      // folder of a plugged-in CA, ROOT_CA_DIR; the CA is self-signed if the folder has none
	MultiRoot bool        // a plugged-in CA may be replaced by one with another root: ISTIO_MULTIROOT_MESH
	Store     store.Store // holds a self-signed CA
	Rotation  rotation.Options
	Lease     store.Lease // required to replace the root of a self-signed CA
	// Interval is how long a step of the rotation must have been due before it is taken:
	// CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL.
	Interval time.Duration

	Names func() []string // names in the server's own certificate
	Files Files           // certificate of the server that another system issued; optional
	// FilesVouch also trusts the roots in Files for client certificates: the same CA issues both.
	FilesVouch bool

	// NoWatch polls files each second instead of using the operating system's events.
	NoWatch bool

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Authority loads a CA and keeps it up to date. Safe for concurrent use.
type Authority struct {
	o       Options
	plugged bool
	due     dueSince
	serving atomic.Pointer[serving]
	found   atomic.Pointer[[]diag.Diagnostic]
	revoked atomic.Pointer[pki.Revocations] // nil if there are no revocation lists
	changed chan struct{}                   // signals a change of the roots; holds at most one message

	// Owned by the Run goroutine: why the server's own certificate was not signed, and when to try again.
	unsigned error
	retry    time.Time
	// Owned by the Run goroutine: the certificates that may sign revocation lists, and the indexes in ca-crl.pem of lists
	// that none of them has signed.
	issuers      []*x509.Certificate
	unsignedCRLs []int
}

// Intervals of the loop.
const (
	filePoll    = time.Second // without file events
	storeResync = time.Minute
	loadRetry   = time.Second
)

// New returns an Authority that has loaded nothing.
func New(o Options) *Authority {
	a := &Authority{o: o, changed: make(chan struct{}, 1)}
	a.register()
	return a
}

// Load loads the CA for the first time. It retries until the store answers with a usable CA, and reports findings
// meanwhile. After an error the server should not start: it could issue no certificate, or only certificates that no
// workload trusts.
func (a *Authority) Load(ctx context.Context) error {
	load := func() error { return a.step(ctx, a.o.CA.Now()) }
	if a.o.Elsewhere {
		load = func() error { return a.renew(ctx, a.o.CA.Now()) }
	} else {
		p, err := store.ReadPlugged(a.o.Folder, a.o.CA.Now())
		switch {
		case err != nil:
			return err
		case p != nil:
			a.plugged = true
			load = func() error { return a.reload(ctx, a.o.CA.Now()) }
		case a.o.Store == nil:
			return errors.New("there is no CA, and nowhere to keep one of the server's own")
		}
	}
	for {
		err := load()
		if !errors.Is(err, store.ErrAway) && !errors.Is(err, store.ErrBroken) && !errors.Is(err, ca.ErrUnavailable) {
			a.report(nil, nil)
			return err
		}
		if a.o.Elsewhere {
			a.report(nil, err)
		} else {
			a.report(err, nil)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(loadRetry):
		}
	}
}

// Run follows changes and rotations of the CA until ctx ends.
func (a *Authority) Run(ctx context.Context) error {
	every := min(storeResync, max(a.o.Interval/4, time.Second)) // interval of step
	w := watchfile.New(a.watched(every))
	defer w.Close()
	var problem error // last error of reload or step
	next := time.Now().Add(every)
	for w.Next(ctx, time.Until(next)) {
		due := !time.Now().Before(next)
		if due {
			next = time.Now().Add(every)
		}
		switch {
		case a.o.Elsewhere:
		case a.plugged:
			problem = a.reload(ctx, a.o.CA.Now())
		case due:
			problem = a.step(ctx, a.o.CA.Now())
		}
		a.report(problem, a.renew(ctx, a.o.CA.Now()))
	}
	return nil
}

// watched returns the files that Run reads, and how often it checks them and the roots of callers. If there are neither
// files nor such roots, it checks them only at each step.
func (a *Authority) watched(step time.Duration) watchfile.Options {
	f := a.o.Files
	o := watchfile.Options{Paths: []string{f.Certificate, f.Key, f.Roots}, Poll: step, NoWatch: a.o.NoWatch, Logger: a.o.Logger}
	if a.plugged {
		o.Paths = append(o.Paths, a.o.Folder)
	}
	if a.plugged || f != (Files{}) || a.o.Anchors != nil {
		o.Poll = filePoll
	}
	return o
}

// report publishes the errors of the CA and of the server's own certificate as findings, and logs the new ones.
func (a *Authority) report(problem, own error) {
	var list []diag.Diagnostic
	add := func(code, message, fix string) {
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: code, Message: message, Fix: fix})
	}
	const (
		inUse = "the CA that was loaded last stays in use: "
		none  = "there is no CA yet, and nothing is served: "
		again = ": it is read again by itself"
	)
	state := inUse
	if a.o.CA.Bundle() == nil {
		state = none
	}
	switch {
	case problem == nil:
	case a.plugged:
		add("CertificateAuthority", inUse+problem.Error(), "correct the files in "+a.o.Folder+again)
	case errors.Is(problem, pki.ErrExpired):
		add("CertificateAuthority", state+problem.Error(), "if the clock is right, delete "+a.o.Store.String()+
			" and restart every server: the first one makes a new CA; a backup has expired too")
	case a.o.CA.Bundle() == nil && !errors.Is(problem, store.ErrBroken), errors.Is(problem, store.ErrAway):
		add("CertificateAuthority", state+problem.Error(), "let this server read and write "+a.o.Store.String()+again)
	case errors.Is(problem, store.ErrDeleted):
		add("CertificateAuthority", inUse+problem.Error(), "wait two minutes for the elected server; until then start or restart no server, "+
			"and store no other CA: a server that starts without a stored CA makes a new one, which workloads do not trust")
	default:
		add("CertificateAuthority", state+problem.Error(), "correct or restore "+a.o.Store.String()+again)
	}
	if at := a.Revoked().Renewal(); !at.IsZero() && a.o.CA.Now().After(at) {
		add("RevokedCertificates", "a list in ca-crl.pem should have been replaced at "+at.UTC().Format(time.RFC3339)+
			": what it revokes stays refused, what was revoked since is not",
			"put a new list into "+a.o.Folder+": it is read by itself")
	}
	if len(a.unsignedCRLs) > 0 {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "RevokedCertificates",
			Message: fmt.Sprintf("of the lists in ca-crl.pem, number %d is signed by no certificate of the CA, nor by a root of callers: "+
				"it revokes nothing that these have issued", a.unsignedCRLs[0]),
			Fix: "put a list into " + a.o.Folder + " that the CA has signed: it is read by itself",
		})
	}
	if own != nil {
		fix := "correct the fault that the message names: the certificate is requested again by itself"
		if f := a.o.Files; f != (Files{}) {
			fix = "correct " + f.Certificate + " and the files beside it: they are read again by themselves"
		}
		message := "the server's own certificate cannot be replaced, and the last one stays in use: "
		if a.serving.Load() == nil {
			message, fix = "the server has no certificate of its own yet, and nothing is served: ", "let the signer sign it: it is tried again"
		}
		add("ServerCertificate", message+own.Error(), fix)
	}
	had := a.Findings()
	a.found.Store(&list)
	for _, d := range list {
		if !slices.Contains(had, d) {
			a.o.Logger.Error("failed to update certificate", "finding", d.String())
		}
	}
}

// Findings returns what is wrong with the CA and with the server's own certificate.
func (a *Authority) Findings() []diag.Diagnostic {
	if list := a.found.Load(); list != nil {
		return *list
	}
	return nil
}

// step takes the step of the rotation that is due, if any, and loads the CA from its store.
func (a *Authority) step(ctx context.Context, now time.Time) error {
	s, err := store.Step(ctx, a.o.Store, a.o.Rotation, now, store.Leads(a.o.Lease) && a.due.at(now, a.o.Interval))
	if err != nil {
		return err
	}
	a.due.set(s.Due(a.o.Rotation))
	b, err := s.Bundle(now)
	if err != nil {
		return err
	}
	if last := a.o.CA.Bundle(); last != nil && !a.o.MultiRoot &&
		!slices.ContainsFunc(b.Roots, func(r *x509.Certificate) bool { return slices.ContainsFunc(last.Roots, r.Equal) }) {
		return errors.New("the CA was replaced by one that shares no root with it, so that workloads do not trust it: " +
			"put the old one back, or restart every server and workload")
	}
	return a.use(ctx, b)
}

// reload reads a plugged-in CA again. A CA whose root workloads do not trust yet is refused.
func (a *Authority) reload(ctx context.Context, now time.Time) error {
	p, err := store.ReadPlugged(a.o.Folder, now)
	switch {
	case err != nil:
		return err
	case p == nil:
		return fmt.Errorf("the CA in %s is gone", a.o.Folder)
	}
	if last := a.o.CA.Bundle(); last != nil && !a.o.MultiRoot && !slices.ContainsFunc(last.Roots, p.Bundle.Roots[0].Equal) {
		return errors.New("the CA has another root, which workloads do not trust yet: " +
			"add it to root-cert.pem first, and keep the old one there (ISTIO_MULTIROOT_MESH=true takes it at once)")
	}
	revoked, err := pki.ParseRevocations(p.CRL)
	if err == nil && revoked == nil && p.CRL != nil {
		err = errors.New("it is empty: write a list, or remove the file to revoke nothing")
	}
	if err != nil {
		return fmt.Errorf("ca-crl.pem in %s: %w", a.o.Folder, err)
	}
	if err := a.use(ctx, p.Bundle); err != nil {
		return err
	}
	last := a.revoked.Swap(revoked)
	changed := string(last.Text()) != string(revoked.Text())
	issuers := append(a.anchors(p.Bundle), append(slices.Clip(p.Bundle.Chain), p.Bundle.Certificate)...)
	if changed || !same(a.issuers, issuers) {
		a.issuers, a.unsignedCRLs = issuers, revoked.SignedByNone(issuers)
	}
	if changed {
		a.o.Logger.Info("revoked certificates loaded", "lists", revoked.Len())
		a.notifyRoots()
	}
	return nil
}

// Revoked returns the revocation lists of a plugged-in CA, or nil if there are none.
func (a *Authority) Revoked() *pki.Revocations { return a.revoked.Load() }

// Loaded reports whether the server has a certificate to show.
func (a *Authority) Loaded() bool { return a.serving.Load() != nil }

// use makes the CA sign with a bundle, unless it does so already. The server's own certificate is issued from the
// bundle first, so that the server trusts the CA's certificates before the CA issues any.
func (a *Authority) use(ctx context.Context, b *pki.Bundle) error {
	last := a.o.CA.Bundle()
	if last != nil && last.Certificate.Equal(b.Certificate) && slices.EqualFunc(last.Roots, b.Roots, (*x509.Certificate).Equal) &&
		slices.EqualFunc(last.Chain, b.Chain, (*x509.Certificate).Equal) {
		return nil
	}
	own, err := a.newServing(ctx, b, a.o.CA.Now())
	if own == nil {
		return fmt.Errorf("the server's own certificate: %w", err)
	}
	a.serve(own)
	a.o.CA.Use(b)
	a.o.Logger.Info("certificate authority loaded", "subject", b.Certificate.Subject.String(),
		"not_after", b.NotAfter(), "roots", len(b.Roots), "plugged_in", a.plugged)
	a.notifyRoots()
	return nil
}

// notifyRoots signals on changed that the roots may have changed.
func (a *Authority) notifyRoots() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Roots returns the certificates that workloads trust, as PEM.
func (a *Authority) Roots() []byte {
	if b := a.o.CA.Bundle(); b != nil {
		return pki.EncodeCertificates(b.Roots...)
	}
	if a.o.Elsewhere {
		return pki.EncodeCertificates(a.anchors(nil)...)
	}
	return nil
}

// anchors returns the roots that callers are verified by: those in a bundle, which may be nil, and Options.Anchors.
func (a *Authority) anchors(b *pki.Bundle) []*x509.Certificate {
	var list []*x509.Certificate
	if b != nil {
		list = slices.Clone(b.Roots)
	}
	if a.o.Anchors != nil {
		list = append(list, a.o.Anchors()...)
	}
	return list
}

// Changed returns a channel that gets a message when the roots may have changed.
func (a *Authority) Changed() <-chan struct{} { return a.changed }

// dueSince delays a step until it has been due at every check for an interval, so that one wrong reading of the clock
// replaces no root.
type dueSince struct{ due, first, last time.Time }

func (d *dueSince) set(due time.Time) { d.due = due }

// at reports whether the step has been due for an interval.
func (d *dueSince) at(now time.Time, interval time.Duration) bool {
	switch {
	case d.due.IsZero():
		return false // the store was not read yet
	case now.Before(d.due), now.Before(d.last):
		d.first = time.Time{}
	case d.first.IsZero():
		d.first = now
	}
	d.last = now
	return !d.first.IsZero() && now.Sub(d.first) >= interval
}

// register registers the metrics.
func (a *Authority) register() {
	gauge := func(name, help string, value func(*pki.Bundle) float64) {
		promauto.With(a.o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{Name: "citadel_server_" + name, Help: help}, func() float64 {
			if b := a.o.CA.Bundle(); b != nil {
				return value(b)
			}
			return 0
		})
	}
	root := func(b *pki.Bundle) time.Time { return b.Roots[0].NotAfter }
	chain := func(b *pki.Bundle) time.Time { return b.NotAfter() }
	for _, c := range []struct {
		name, of string
		at       func(*pki.Bundle) time.Time
	}{
		{"root_cert", "the root certificate", root},
		{"cert_chain", "the first of the CA certificate, the intermediates and the root", chain},
	} {
		gauge(c.name+"_expiry_timestamp", "When "+c.of+" expires, in seconds since 1970.",
			func(b *pki.Bundle) float64 { return float64(c.at(b).Unix()) })
		gauge(c.name+"_expiry_seconds", "Seconds until "+c.of+" expires.",
			func(b *pki.Bundle) float64 { return c.at(b).Sub(a.o.CA.Now()).Seconds() })
	}
}
