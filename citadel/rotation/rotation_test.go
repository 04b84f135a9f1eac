package rotation_test

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
)

var (
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options = rotation.Options{Organization: "cluster.local", Lifetime: 100 * 24 * time.Hour, GracePercent: 20, MaxTTL: 24 * time.Hour}
)

func begin(t *rapid.T) rotation.State {
	b, err := pki.NewSelfSigned("cluster.local", options.Lifetime, start)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		for step := range 24 {
			next, changed, err := s.Step(options, now)
			if err != nil {
				t.Fatal(err)
			}
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
					if err != nil {
						t.Fatal(err)
					}
					leaf, err := x509.ParseCertificate(der)
					if err != nil {
						t.Fatal(err)
					}
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
					if _, err := w.leaf.Verify(x509.VerifyOptions{Roots: a.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
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

// TestSteps follows one rotation.
func TestSteps(t *testing.T) {
	b, err := pki.NewSelfSigned("cluster.local", options.Lifetime, start)
	if err != nil {
		t.Fatal(err)
	}
	s, now := rotation.State{Signing: b}, start
	var got []string
	name := map[string]string{}
	for range 8 {
		now = s.Due(options)
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
			if err != nil {
				t.Fatal(err)
			}
			due := rotation.State{Signing: b}.Due(rotation.Options{Lifetime: life, GracePercent: percent})
			if want := start.Add(life / 100 * time.Duration(100-percent)); due.Sub(want).Abs() > time.Hour {
				t.Errorf("%d years, %d %%: due at %v, want %v", years, percent, due, want)
			}
		}
	}
}
