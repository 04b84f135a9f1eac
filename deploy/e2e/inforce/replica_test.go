package inforce

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// replicaDies kills a replica while changes go on, and keeps its proxies from the other one for some time.
func (m *mesh) replicaDies(t *testing.T) {
	const lives, dies = 0, 1
	for range 2 {
		m.change(t, m.next(""))
	}
	m.cut.Store(true)
	m.replicas[dies].Kill()
	// The proxies of the other one have the change soon. Those of the dead one are connected to none.
	lost := m.next("")
	for range 3 {
		file := m.apply(t, lost)
		if text, code := m.waitAt(t, lives, "-f", file, "--timeout", "1s"); code == 0 {
			t.Fatalf("wait ends with 0 while the proxies of a replica are connected to none: %s", text)
		}
		lost = m.next("")
	}
	must.Succeed(t, m.endpoint(dies, false)) // as a kubelet reports it
	file := m.apply(t, lost)
	if text, code := m.waitAt(t, lives, "-f", file, "--timeout", "1s"); code == 0 {
		t.Fatalf("wait ends with 0 after the replica has left the Service: %s", text)
	}
	m.cut.Store(false)
	if testing.Short() {
		return // the proxies of a dead replica are awaited for a minute
	}
	began := time.Now()
	for i := 0; ; i++ {
		file := m.apply(t, m.next(""))
		if i == 5 {
			must.Succeed(t, m.replicas[dies].Restart(m.ctx))
			must.Succeed(t, m.endpoint(dies, true))
		}
		text, code := m.waitAt(t, lives, "-f", file, "--timeout", "2s")
		if code == 0 {
			m.meetAny(t)
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("wait is not right again: %d %s", code, text)
		}
	}
	t.Logf("wait is right again after %s", time.Since(began).Round(time.Millisecond))
	for range 4 {
		m.change(t, m.next(""))
		m.meetAny(t)
	}
	// All proxies are connected to the other one. The replica that has started again reads no certificates for them.
	m.change(t, secretYAML(t, 4)+secureYAML)
	m.meet(t, "4", m.certificate)
	for serial := range int64(2) {
		m.change(t, secretYAML(t, 5+serial))
		m.meet(t, fmt.Sprint(5+serial), m.certificate)
	}
}

// missing matches the output of wait once all proxies except one have connected to replicas that have started again.
var missing = regexp.MustCompile(`(?s)behind  .*\n  web-3\.shop: departed since \S+, connected to istiod-[01].*its Pod runs`)

// allReplicasDie kills all replicas while a proxy is stopped. The new processes know the proxy by its Pod, and still
// name it after the minute in which they await unknown proxies.
func (m *mesh) allReplicasDie(t *testing.T) {
	if testing.Short() {
		t.Skip("proxies of dead replicas are awaited for a minute")
	}
	release := m.hold(t, m.proxy(t, "web-3"))
	for _, p := range m.replicas {
		p.Kill()
	}
	for _, p := range m.replicas {
		must.Succeed(t, p.Restart(m.ctx))
	}
	began := time.Now()
	for since := time.Duration(0); since < 100*time.Second; since = time.Since(began) {
		file := m.apply(t, m.next(""))
		text, code := m.wait(t, "-f", file, "--timeout", "5s")
		if code == 0 {
			t.Fatalf("wait ends with 0 after %s, while a proxy is stopped: %s", since.Round(time.Millisecond), text)
		}
		if since > 70*time.Second && !missing.MatchString(text) {
			t.Errorf("wait ends with %d after %s: %s", code, since.Round(time.Millisecond), text)
		}
	}
	release()
	m.change(t, m.next(""))
	m.meetAny(t)
}
