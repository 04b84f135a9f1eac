package clusters

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// remoteSecret names remote clusters, as istioctl create-remote-secret does.
func remoteSecret(kubeconfigs map[string][]byte) string {
	yaml := "apiVersion: v1\nkind: Secret\nmetadata: {name: remotes, namespace: istio-system, labels: {istio/multiCluster: \"true\"}}\ndata:\n"
	for id, kubeconfig := range kubeconfigs {
		yaml += fmt.Sprintf("  %s: %s\n", id, base64.StdEncoding.EncodeToString(kubeconfig))
	}
	return yaml
}

// second is the second cluster as part of the mesh, under load.
type second struct {
	*mesh

	tr      load.Traffic
	between *faults.Proxy // on the way to its API server
	tokens  []string      // that were used
}

// testTwoClusters adds the second cluster to the mesh, runs through its faults, and removes it, all under load from the
// first.
func testTwoClusters(t *testing.T, m *mesh) {
	between, err := faults.Start(t.Context(), m.two, "127.0.0.1")
	must.Succeed(t, err)
	t.Cleanup(between.Close)
	s := &second{mesh: m, between: between}
	// They run before the mesh knows of their cluster.
	m.remote = m.run(t.Context(), t, secondCluster, "two", false, func(string) bool { return true })
	s.tr = begin(t, echoAddr, "echo", m.own.Pod("client"), m.sotw.Pod("client-sotw"))
	s.tr.Answers(t, "echo-1")
	for _, part := range []struct {
		name string
		test func(*second, *testing.T)
	}{
		{"added", (*second).added},
		{"new token", (*second).newToken},
		{"broken kubeconfigs", (*second).broken},
		{"killed", (*second).killed},
		{"silent at the start", (*second).silentAtStart},
		{"removed", (*second).removed},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			part.test(s, t)
			if err := s.tr.Err(); err != nil {
				t.Error(err)
			}
		})
		if !ok {
			return
		}
	}
	m.healthy(t)
	s.keepsSecrets(t)
}

// kubeconfig lets a ServiceAccount of the second cluster in.
func (s *second) kubeconfig(t *testing.T, account string, way func(cluster.Access) cluster.Access) []byte {
	t.Helper()
	access, err := s.two.ServiceAccount(t.Context(), "istio-system", account)
	must.Succeed(t, err)
	s.tokens = append(s.tokens, access.Token)
	return encode(t, way(access))
}

func encode(t *testing.T, a cluster.Access) []byte {
	t.Helper()
	b, err := a.Kubeconfig()
	must.Succeed(t, err)
	return b
}

func direct(a cluster.Access) cluster.Access { return a }

// is waits until the control plane reports this state of its remote clusters.
func (s *second) is(t *testing.T, want string) {
	t.Helper()
	suite.Eventually(t, "remote clusters: "+cmp.Or(want, "none"), func() bool {
		var said []string
		for _, c := range page[[]struct{ ID, SyncStatus string }](t, s.mesh, "/debug/clusterz") {
			if c.ID != "Kubernetes" { // its own
				said = append(said, c.ID+" "+c.SyncStatus)
			}
		}
		return strings.Join(said, ", ") == want
	})
}

// follows changes the second cluster, and sees traffic follow.
func (s *second) follows(t *testing.T) {
	t.Helper()
	apply(t, s.two, slice("echo", "echo-4", "10.10.2.24", unready))
	s.tr.Silent(t, "echo-4")
	apply(t, s.two, slice("echo", "echo-4", "10.10.2.24", ready))
	s.tr.Answers(t, "echo-4")
}

// added waits for the inbound side of echo-3 before callers hear of it. Its proxy was connected while nobody knew its
// workload: a connection that came meanwhile would be passed through as TCP, and be cut where Envoy drains the filter
// chain that did so. No order on the wire can spare it, for callers and called have streams of their own.
func (s *second) added(t *testing.T) {
	s.is(t, "")
	apply(t, s.two, slice("echo", "echo-3", "10.10.2.23", unready))
	apply(t, s.one, remoteSecret(map[string][]byte{"two": s.kubeconfig(t, "reader", s.between.Access)}))
	s.tr.Answers(t, "echo-4")
	s.is(t, "two synced")
	suite.Eventually(t, "echo-3 serves its port", func() bool {
		active, err := s.remote.Pod("echo-3").Proxy.Get(t.Context(), "/config_dump?resource=dynamic_listeners&mask=active_state")
		return err == nil && bytes.Contains(active, []byte("inbound|8080||"))
	})
	apply(t, s.two, slice("echo", "echo-3", "10.10.2.23", ready))
	for _, pod := range []string{"echo-1", "echo-2", "echo-3", "echo-4"} {
		s.tr.Answers(t, pod)
	}
	s.follows(t)

	// From the other side: the service has another address there.
	other := s.remote.Pod("client-two")
	one := send(other, otherAddr, strings.TrimSuffix(otherAddr, ":80"))
	suite.Eventually(t, "the service answers in the second cluster", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := one(ctx)
		return err == nil
	})
	back := begin(t, otherAddr, strings.TrimSuffix(otherAddr, ":80"), other)
	for _, pod := range []string{"echo-1", "echo-2", "echo-3", "echo-4"} {
		back.Answers(t, pod)
	}
}

// newToken changes the user and the address of the API server: the old connections are given up when the new ones have
// all, and nothing changes.
func (s *second) newToken(t *testing.T) {
	s.still(t, func() {
		apply(t, s.one, remoteSecret(map[string][]byte{"two": s.kubeconfig(t, "new-reader", direct)}))
		suite.Eventually(t, "the old connections are given up", func() bool { return s.between.Watches(faults.Match{}) == 0 })
		s.is(t, "two synced")
	})
	s.follows(t)
}

// broken writes an invalid kubeconfig to the Secret. The last valid one stays in force.
func (s *second) broken(t *testing.T) {
	expired := s.two.Admin()
	expired.Token = "a-token-that-expired"
	s.tokens = append(s.tokens, expired.Token)
	good := s.kubeconfig(t, "new-reader", direct)
	runs := bytes.Replace(good, []byte("    token: "),
		[]byte("    exec: {apiVersion: client.authentication.k8s.io/v1, command: \"true\", interactiveMode: Never}\n    token: "), 1)
	if bytes.Equal(runs, good) {
		t.Fatal("a kubeconfig without a token")
	}
	for _, c := range []struct {
		name       string
		kubeconfig []byte
		finding    string
	}{
		{"torn", good[:len(good)/2], "ClusterNotConnected"},
		{"runs a program", runs, "ClusterNotConnected"},
		{"expired", encode(t, expired), "ClusterTimeout"},
	} {
		s.still(t, func() {
			apply(t, s.one, remoteSecret(map[string][]byte{"two": c.kubeconfig}))
			suite.Eventually(t, c.name+": it is a finding", func() bool { return s.finding(t, c.finding) })
			s.tr.Answers(t, "echo-3")
		})
		s.is(t, "two synced")
		s.follows(t)
		apply(t, s.one, remoteSecret(map[string][]byte{"two": good}))
		suite.Eventually(t, c.name+": the finding goes", func() bool { return !s.finding(t, c.finding) })
	}
}

// killed ends the API server of the second cluster as a crash would, and starts it again. Meanwhile the first goes on.
func (s *second) killed(t *testing.T) {
	s.still(t, func() {
		s.two.KillAPIServer()
		time.Sleep(away)
		s.tr.Answers(t, "echo-3")
		s.tr.Answers(t, "echo-4")
	})
	apply(t, s.one, slice("echo", "echo-2", "10.10.0.22", unready))
	s.tr.Silent(t, "echo-2")
	apply(t, s.one, slice("echo", "echo-2", "10.10.0.22", ready))
	s.tr.Answers(t, "echo-2")
	s.still(t, func() {
		must.Succeed(t, s.two.StartAPIServer(t.Context()))
	})
	s.follows(t)
}

// silentAtStart restarts the control plane while one remote cluster does not answer for a while, and another one never
// answers. It waits for them, but not longer than its timeout, and then starts without their content.
func (s *second) silentAtStart(t *testing.T) {
	never, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer never.Close()
	silent := s.two.Admin()
	silent.Server = "https://" + never.Addr().String()
	s.still(t, func() {
		s.between.Lose()
		apply(t, s.one, remoteSecret(map[string][]byte{"two": s.kubeconfig(t, "reader", s.between.Access), "three": encode(t, silent)}))
		s.is(t, "three timeout, two synced")
	})
	// The proxies of the cluster keep their configuration, and above all their inbound side, because other proxies may
	// learn much later that they are no longer endpoints.
	echo3 := s.remote.Pod("echo-3").Proxy
	before, err := echo3.Stats(t.Context(), unmoved)
	must.Succeed(t, err)

	s.pilot.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	began := time.Now()
	must.Succeed(t, s.pilot.Restart(ctx))
	if took := time.Since(began); took < remoteTimeout {
		t.Errorf("ready after %s, want it to wait %s for remote clusters", took, remoteTimeout)
	}
	s.is(t, "three timeout, two timeout")
	s.tr.Silent(t, "echo-3")
	s.tr.Silent(t, "echo-4")
	s.tr.Answers(t, "echo-1")
	now, err := echo3.Stats(t.Context(), unmoved)
	must.Succeed(t, err)
	for _, c := range changed(before, now) {
		t.Errorf("echo-3: %s", c)
	}
	s.between.Heal()
	s.tr.Answers(t, "echo-3")
	s.tr.Answers(t, "echo-4")
	s.is(t, "three timeout, two synced")
}

// removed deletes the Secret, and then the pods.
func (s *second) removed(t *testing.T) {
	must.Succeed(t, s.one.Delete(t.Context(), []byte(remoteSecret(nil))))
	s.tr.Silent(t, "echo-3")
	s.tr.Silent(t, "echo-4")
	s.is(t, "")
	s.tr.Answers(t, "echo-1")
	s.tr.Answers(t, "echo-2")
	suite.Eventually(t, "nobody asks its API server", func() bool { return s.between.Watches(faults.Match{}) == 0 })
	s.remote.Stop()
	s.remote = nil
}

// keepsSecrets wants no token in the log.
func (s *second) keepsSecrets(t *testing.T) {
	t.Helper()
	log, err := os.ReadFile(s.pilot.LogFile())
	must.Succeed(t, err)
	if slices.ContainsFunc(s.tokens, func(token string) bool { return bytes.Contains(log, []byte(token)) }) {
		t.Error("a token is in the log")
	}
	if !bytes.Contains(log, []byte("ClusterNotConnected")) {
		t.Error("a broken kubeconfig is not in the log")
	}
}
