package rotation_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options = rotation.Options{Organization: "cluster.local", Lifetime: 100 * 24 * time.Hour, GracePercent: 20, MaxTTL: 24 * time.Hour}
)

func begin(t *rapid.T) rotation.State {
	b, err := pki.NewSelfSigned("cluster.local", options.Lifetime, start)
	must.Succeed(t, err)
	return rotation.State{Signing: b}
}

// workload is one with a certificate, and the roots that came with it.
type workload struct {
	leaf     *x509.Certificate
	roots    *x509.CertPool
	notAfter time.Time
}

// TestNoHandshakeFails lets time pass in steps of any length within a certificate's life, from before a rotation to
// after it. At each step some workloads renew, and any two that have valid certificates trust each other's.
func TestNoHandshakeFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := begin(t), start.Add(79*24*time.Hour)
		all := make([]workload, 3)
		roots := map[string]bool{}
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		for step := range 24 {
			next, changed, err := s.Step(options, now)
			must.Succeed(t, err)
			if changed != !now.Before(s.Due(options)) {
				t.Fatalf("due at %v, now %v, changed %v", s.Due(options), now, changed)
			}
			s = next
			b, err := s.Bundle(now)
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			roots[b.Certificate.SerialNumber.String()] = true
			for i, w := range all {
				// An agent renews by 80 % of the life of its certificate at the latest, or it has none that is valid.
				if step == 0 || w.notAfter.Sub(now) < options.MaxTTL/5 || rapid.Bool().Draw(t, "renews") {
					der, _, err := b.Sign(pki.Leaf{URI: fmt.Sprintf("spiffe://cluster.local/ns/a/sa/w%d", i), Key: key.Public(), TTL: options.MaxTTL}, now)
					must.Succeed(t, err)
					leaf, err := x509.ParseCertificate(der)
					must.Succeed(t, err)
					pool := x509.NewCertPool()
					for _, r := range b.Roots {
						pool.AddCert(r)
					}
					all[i] = workload{leaf, pool, leaf.NotAfter}
				}
			}
			for i, a := range all {
				for j, w := range all {
					if a.notAfter.Before(now) || w.notAfter.Before(now) {
						continue
					}
					if _, err := w.leaf.Verify(
						x509.VerifyOptions{Roots: a.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
						t.Fatalf("step %d, %v: %d does not trust %d: %v", step, now, i, j, err)
					}
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 19).Draw(t, "hours")) * time.Hour)
		}
		for ; len(s.Old) > 0 || len(roots) < 2; now = now.Add(time.Hour) { // the test's time was too short for a step
			if s, _, err = s.Step(options, now); err != nil {
				t.Fatal(err)
			}
			roots[s.Signing.Certificate.SerialNumber.String()] = true
		}
	})
}

// agent is the agent of a workload: it renews its certificate, and learns the roots, in its own time.
type agent struct {
	own   tls.Certificate
	leaf  *x509.Certificate
	roots *x509.CertPool
	renew time.Time
}

// config returns the TLS configuration of an agent at a time.
func (a *agent) config(now time.Time) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{a.own}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: a.roots, Time: func() time.Time { return now },
		InsecureSkipVerify: true, //nolint:gosec // as in a mesh, VerifyConnection does it: certificates have no DNS names
		VerifyConnection: func(c tls.ConnectionState) error {
			_, err := c.PeerCertificates[0].Verify(
				x509.VerifyOptions{Roots: a.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			return err
		},
	}
}

// TestFiftyAgents lets fifty agents renew, each at a time of its own, from before the rotation of a root to after it,
// and has them connect to each other throughout. No handshake fails, and at the end the old root is trusted by nobody.
func TestFiftyAgents(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // nothing is secret
	b, err := pki.NewSelfSigned("cluster.local", options.Lifetime, start)
	must.Succeed(t, err)
	s, first := rotation.State{Signing: b}, b.Certificate
	agents := make([]agent, 50)
	keys := make([]crypto.Signer, len(agents))
	for i := range keys {
		if keys[i], err = pki.GenerateKey(); err != nil {
			t.Fatal(err)
		}
	}
	begin := start.Add(79 * 24 * time.Hour)
	handshakes, signers := 0, map[string]bool{}
	for now := begin; now.Before(begin.Add(5 * 24 * time.Hour)); now = now.Add(20 * time.Minute) {
		if s, _, err = s.Step(options, now); err != nil {
			t.Fatal(err)
		}
		b, err = s.Bundle(now)
		must.Succeed(t, err)
		for i := range agents {
			a := &agents[i]
			if now.Before(a.renew) {
				continue
			}
			leaf := pki.Leaf{URI: fmt.Sprintf("spiffe://cluster.local/ns/a/sa/w%d", i), Key: keys[i].Public(), TTL: options.MaxTTL}
			der, _, err := b.Sign(leaf, now)
			must.Succeed(t, err)
			if a.leaf, err = x509.ParseCertificate(der); err != nil {
				t.Fatal(err)
			}
			a.own, a.roots = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: keys[i]}, x509.NewCertPool()
			for _, r := range b.Roots {
				a.roots.AddCert(r)
			}
			a.renew = rotation.Renewal(now, a.leaf.NotAfter, rnd.Float64())
			signers[b.Certificate.SerialNumber.String()] = true
		}
		for range 3 {
			one, two := &agents[rnd.IntN(len(agents))], &agents[rnd.IntN(len(agents))]
			client, server := net.Pipe()
			result := make(chan error, 1)
			go func() { result <- tls.Server(server, two.config(now)).HandshakeContext(t.Context()) }()
			err := tls.Client(client, one.config(now)).HandshakeContext(t.Context())
			client.Close()
			if err := errors.Join(err, <-result); err != nil {
				t.Fatalf("%v: %v", now, err)
			}
			server.Close()
			handshakes++
		}
	}
	if len(signers) != 2 || handshakes < 1000 {
		t.Errorf("%d handshakes, by certificates of %d roots", handshakes, len(signers))
	}
	old := x509.NewCertPool()
	old.AddCert(first)
	for i := range agents {
		if _, err := agents[i].leaf.Verify(
			x509.VerifyOptions{Roots: old, CurrentTime: agents[i].leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
			t.Errorf("agent %d has a certificate of the old root", i)
		}
	}
}

// TestSteps follows one rotation.
func TestSteps(t *testing.T) {
	b, err := pki.NewSelfSigned("cluster.local", options.Lifetime, start)
	must.Succeed(t, err)
	s := rotation.State{Signing: b}
	var got []string
	name := map[string]string{}
	for range 8 {
		now := s.Due(options)
		if _, early, _ := s.Step(options, now.Add(-time.Nanosecond)); early {
			t.Fatal("a step before it is due")
		}
		next, changed, err := s.Step(options, now)
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
		s = next
		var line []string
		for _, r := range s.Roots() {
			id := r.SerialNumber.String()
			if name[id] == "" {
				name[id] = fmt.Sprintf("R%d", len(name)+1)
			}
			line = append(line, name[id])
		}
		got = append(got, fmt.Sprintf("%s day %.2f", strings.Join(line, "+"), now.Sub(start).Hours()/24))
	}
	want := []string{
		"R1+R2 day 80.00", "R2+R1 day 81.00", "R2 day 82.00",
		"R2+R3 day 160.00", "R3+R2 day 161.00", "R3 day 162.00",
		"R3+R4 day 240.00", "R4+R3 day 241.00",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestRenewal renews between half and 80 % of a life.
func TestRenewal(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: 12 * time.Hour, 1: 19*time.Hour + 12*time.Minute} {
		if got := rotation.Renewal(start, start.Add(24*time.Hour), jitter).Sub(start); got != want {
			t.Errorf("jitter %g: %s, want %s", jitter, got, want)
		}
	}
}

// TestDue begins a rotation in the last part of a root's life, however long that is.
func TestDue(t *testing.T) {
	for _, years := range []int{1, 10, 30, 100} {
		for _, percent := range []int{1, 20, 30, 50, 99} {
			life := time.Duration(years) * 365 * 24 * time.Hour
			b, err := pki.NewSelfSigned("cluster.local", life, start)
			must.Succeed(t, err)
			due := rotation.State{Signing: b}.Due(rotation.Options{Lifetime: life, GracePercent: percent})
			if want := start.Add(life / 100 * time.Duration(100-percent)); due.Sub(want).Abs() > time.Hour {
				t.Errorf("%d years, %d %%: due at %v, want %v", years, percent, due, want)
			}
		}
	}
}
