package upgrade

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// enabled is the label of a namespace whose pods the default revision injects.
const enabled = "istio-injection: enabled"

// TestUpgrade: two replicas of the release before become two of this one, and back again. Proxies of both agents go on
// through each move. Meanwhile the root of the CA is announced, takes over and is the only one that is trusted.
func TestUpgrade(t *testing.T) {
	w := start(t, "previous-base", "previous")
	w.rolledOut(install.Namespace, "istiod")
	w.apply(fmt.Sprintf(application, enabled) + "---" + fmt.Sprintf(routes, 0))
	w.launch("old")
	old, fresh := set{"old", "istiod"}, set{"new", "istiod"}
	w.inForce("installed", old)

	first := w.rotate("announced")
	since := time.Now()
	w.upgrade("", "istiod")
	w.inForce("upgraded", old)
	w.launch("new") // its agents are of this release
	w.inForce("agents of both releases with this release", old, fresh)

	w.rest(since)
	w.rotate("replaced")
	since = time.Now()
	w.inForce("the next root signs", old, fresh)
	w.upgrade("previous-", "previous")
	w.inForce("back at the release before, with agents of both", old, fresh)

	w.rest(since)
	last := w.rotate("done")
	if bytes.Equal(first.Raw, last.Raw) {
		t.Error("the root was not replaced")
	}
	w.upgrade("", "istiod")
	w.inForce("upgraded again, with one root", old, fresh)
	for _, app := range []string{"client", "gateway", "server"} {
		for _, s := range []set{old, fresh} {
			w.rooted(app+"-"+s.name, last)
		}
	}
}

// upgrade upgrades both charts.
func (w *world) upgrade(prefix, istiod string) {
	w.t.Helper()
	w.install("base", prefix+"base")
	w.install("istiod", istiod)
	w.rolledOut(install.Namespace, "istiod")
	w.whole("the control plane was replaced")
}

// lifetime returns how long certificates of workloads live.
func (w *world) lifetime() time.Duration {
	d, err := time.ParseDuration(shortest)
	must.Succeed(w.t, err)
	return d
}

// rotate takes the next step of a rotation, as the elected replica would once it is due, and returns the root that
// signs. All programs have one clock, so that only the lifetime of certificates must pass between two steps. On a slow
// machine a replica may have taken the step already.
func (w *world) rotate(want string) *x509.Certificate {
	w.t.Helper()
	o := rotation.Options{Organization: "cluster.local", Lifetime: 10 * 365 * 24 * time.Hour, GracePercent: 100,
		MaxTTL: w.lifetime() - pki.Skew}
	kept := store.Secret{Client: w.Dynamic(), Namespace: install.Namespace, Name: store.SelfSigned}
	for _, lead := range []bool{false, true} {
		s, err := store.Step(w.t.Context(), kept, o, time.Now(), lead)
		must.Succeed(w.t, err)
		phase := "done"
		switch {
		case s.Next != nil:
			phase = "announced"
		case len(s.Old) > 0:
			phase = "replaced"
		}
		if phase == want {
			return s.Signing.Certificate
		}
	}
	w.t.Fatalf("the rotation is not %s", want)
	return nil
}

// rest waits until all certificates from before a step have ended.
func (w *world) rest(since time.Time) {
	w.t.Helper()
	time.Sleep(time.Until(since.Add(w.lifetime() + 5*time.Second)))
	w.whole("certificates were renewed")
}

// rooted waits until the Envoy of a Deployment trusts a root alone.
func (w *world) rooted(deployment string, root *x509.Certificate) {
	w.t.Helper()
	pod, want := w.pods("shop", deployment)[0].Name, root.SerialNumber.Text(16)
	suite.Eventually(w.t, deployment+" trusts one root", func() bool {
		text, err := w.get("shop", pod, 15000, "/certs")
		if err != nil {
			return false
		}
		var all struct {
			Certificates []struct {
				Roots []struct {
					Serial string `json:"serial_number"`
				} `json:"ca_cert"`
			} `json:"certificates"`
		}
		must.Succeed(w.t, json.Unmarshal([]byte(text), &all))
		found := false
		for _, c := range all.Certificates {
			for _, r := range c.Roots {
				if strings.TrimLeft(r.Serial, "0") != want {
					return false
				}
				found = true
			}
		}
		return found
	})
}
