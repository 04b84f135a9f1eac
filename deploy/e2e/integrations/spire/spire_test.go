package spire

import (
	"context"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestSPIRE: sidecars have certificates of two trust domains of SPIRE.
func TestSPIRE(t *testing.T) {
	first, second := federated(t, "first.example", "second.example")
	for _, name := range []string{"server", "caller"} {
		first.register(name, second.name)
	}
	first.register("stranger")
	second.register("remote", first.name)
	m := start(t)
	m.run("server", first, ownSocket)
	m.run("caller", first, spireSocket)
	m.run("stranger", first, ownSocket)
	m.run("late", first, ownSocket)
	m.run("remote", second, spireSocket)
	for _, name := range accounts {
		if name != "late" {
			m.ready(name)
		}
	}
	t.Run("Identities", func(t *testing.T) { m.testIdentities(t, first, second) })
	t.Run("Unregistered", func(t *testing.T) { m.testUnregistered(t, first) })
	t.Run("Renewal", func(t *testing.T) {
		traffic := m.traffic(t, "caller", "server")
		m.renewed("server", 3)
		checkRenewals(t, traffic, 2)
	})
	t.Run("Restarts", func(t *testing.T) { m.testRestarts(t, first) })
	t.Run("Federation", func(t *testing.T) { m.testFederation(t, first, second) })
	t.Run("RootIsReplaced", func(t *testing.T) { m.testRootIsReplaced(t, first, second) })
	if !t.Failed() {
		must.Succeed(t, compat.CheckProject("SPIRE", binaries.Version("spire-server"),
			"two servers and agents with federated trust domains give sidecars their certificates; renewal, restarts, a new root", "works"))
	}
}

// traffic sends requests between two workloads until the test ends. The name of an answer is the hash of the caller's
// certificate.
func (m *mesh) traffic(t *testing.T, from, to string) load.Traffic {
	t.Helper()
	return load.Begin(t, load.Options{Rate: 50, Timeout: requestTimeout}, func(ctx context.Context) (string, error) {
		peer, err := m.send(ctx, from, to)
		for part := range strings.SplitSeq(peer, ";") {
			if hash, ok := strings.CutPrefix(part, "Hash="); ok {
				return hash, err
			}
		}
		return "", err
	})
}

// checkRenewals fails unless the caller has had several certificates.
func checkRenewals(t *testing.T, traffic load.Traffic, least int) {
	t.Helper()
	seen := 0
	for _, r := range traffic {
		seen = max(seen, len(r.Report().From))
	}
	if seen < least+1 {
		t.Errorf("the caller has had %d certificates, want more than %d", seen, least)
	}
}

// goesOn waits for answers to another hundred requests.
func goesOn(t *testing.T, traffic load.Traffic, what string) {
	t.Helper()
	answered := func() (n int) {
		for _, r := range traffic {
			n += r.Report().Answered
		}
		return n
	}
	before := answered()
	suite.Eventually(t, "a hundred answers "+what, func() bool { return answered() > before+100 })
	if err := traffic.Err(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (m *mesh) testIdentities(t *testing.T, first, second *domain) {
	for name, d := range map[string]*domain{"server": first, "caller": first, "stranger": first, "remote": second} {
		suite.Eventually(t, name+" serves with a certificate of SPIRE", func() bool { return m.serves(name, d.account(name), d.roots()) })
	}
	m.open(t, "caller", "server", first.account("caller"))
	if _, err := m.send(t.Context(), "stranger", "server"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a policy lets in another identity: %v", err)
	}
	if n, err := m.Pilot.Metric(t.Context(), "citadel_server_success_cert_issuance_count"); err == nil && n > 0 {
		t.Errorf("the control plane has issued %v certificates", n)
	}
	log, err := os.ReadFile(m.workloads["server"].Proxy.LogFile())
	must.Succeed(t, err)
	if !strings.Contains(string(log), "another server provides the certificates") {
		t.Errorf("the agent does not say who provides its certificates:\n%s", log)
	}
}

// testUnregistered runs a workload before its entry exists.
func (m *mesh) testUnregistered(t *testing.T, first *domain) {
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if chain := m.served("late"); len(chain) > 0 {
			t.Fatalf("a workload without an entry has the certificate of %v", chain[0].URIs)
		}
		if _, err := m.send(t.Context(), "late", "stranger"); err == nil {
			t.Fatal("a workload without an entry is let in")
		}
	}
	suite.Eventually(t, "the control plane says what is missing", func() bool {
		log, err := os.ReadFile(m.Pilot.LogFile())
		return err == nil && strings.Contains(string(log), "its server needs an entry for the service account b/late")
	})
	first.register("late")
	m.ready("late")
	m.open(t, "late", "stranger", first.account("late"))
}

// testRestarts kills the agent of SPIRE, and then its server.
func (m *mesh) testRestarts(t *testing.T, first *domain) {
	traffic := m.traffic(t, "caller", "server")
	goesOn(t, traffic, "before")
	first.agent.kill()
	goesOn(t, traffic, "without SPIRE's agent")
	first.startAgent()
	m.renewed("server", 1)
	first.server.kill()
	goesOn(t, traffic, "without SPIRE's server")
	first.startServer()
	m.renewed("server", 2)
	checkRenewals(t, traffic, 2)
}

// open waits until a workload reaches another one with its identity.
func (m *mesh) open(t *testing.T, from, to, identity string) {
	t.Helper()
	suite.Eventually(t, from+" reaches "+to, func() bool {
		peer, err := m.send(t.Context(), from, to)
		return err == nil && strings.Contains(peer, "URI="+identity)
	})
}

func (m *mesh) testFederation(t *testing.T, first, second *domain) {
	closed := func(why string, pairs ...[2]string) {
		t.Helper()
		for _, p := range pairs {
			suite.Eventually(t, p[0]+" does not reach "+p[1]+": "+why, func() bool { return m.refused(p[0], p[1]) })
			for range 20 {
				if !m.refused(p[0], p[1]) {
					t.Fatalf("%s is not refused by %s: %s", p[0], p[1], why)
				}
			}
		}
	}
	closed("the other trust domain is no alias", [2]string{"caller", "remote"}, [2]string{"remote", "server"})
	suite.Write(t, m.Config, meshConfig(second.name))
	m.open(t, "caller", "remote", first.account("caller"))
	m.open(t, "remote", "server", second.account("remote"))
	closed("the stranger has no roots of the other trust domain", [2]string{"stranger", "remote"}, [2]string{"remote", "stranger"})

	first.register("caller")
	closed("its entry no longer federates", [2]string{"caller", "remote"})
	m.open(t, "remote", "server", second.account("remote"))
	m.open(t, "caller", "server", first.account("caller"))
	first.register("caller", second.name)
	m.open(t, "caller", "remote", first.account("caller"))
}

// testRootIsReplaced has the first trust domain sign with another root, and then trust no other.
func (m *mesh) testRootIsReplaced(t *testing.T, first, second *domain) {
	suite.Write(t, m.Config, meshConfig(second.name))
	m.open(t, "remote", "server", second.account("remote"))
	m.open(t, "caller", "remote", first.account("caller"))
	old := first.roots()
	oldID := first.authority("show")
	traffic := append(m.traffic(t, "caller", "server"), m.traffic(t, "remote", "server")...)
	traffic = append(traffic, m.traffic(t, "caller", "remote")...)
	goesOn(t, traffic, "before")
	refresh := func() { second.ask("federation refresh", "-id", "spiffe://"+first.name) }

	nextID := first.authority("prepare")
	refresh()
	var next *x509.Certificate
	for _, r := range first.roots() {
		if !r.Equal(old[0]) {
			next = r
		}
	}
	if len(old) != 1 || next == nil {
		t.Fatalf("%d roots before, and the next one is %v", len(old), next)
	}
	all := []string{"server", "caller", "remote"}
	for _, name := range all {
		suite.Eventually(t, name+" trusts the next root", func() bool { return m.trusts(name, next) })
	}
	goesOn(t, traffic, "while two roots are trusted")
	first.authority("activate", "-authorityID", nextID)
	goesOn(t, traffic, "while the next root is active")
	for _, name := range []string{"server", "caller"} {
		suite.Eventually(t, "the next root signs for "+name, func() bool {
			return m.serves(name, first.account(name), []*x509.Certificate{next})
		})
	}
	// SPIRE's agent takes back certificates of a tainted root, and with them federated roots, before it has new ones. So
	// no workload has one of these by now.
	first.authority("taint", "-authorityID", oldID)
	goesOn(t, traffic, "once the old root is tainted")
	first.authority("revoke", "-authorityID", oldID)
	refresh()
	for _, name := range all {
		suite.Eventually(t, name+" no longer trusts the old root", func() bool { return !m.trusts(name, old[0]) })
	}
	goesOn(t, traffic, "after")
}
