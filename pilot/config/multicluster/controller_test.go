package multicluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// inMesh runs f in a bubble beside a Controller that runs.
func inMesh(t *testing.T, f func(t *testing.T, m *mesh)) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		f(t, m)
		before := m.state()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(m.servers.sources("")); n > 0 {
			t.Errorf("%d sources run after Run has returned", n)
		}
		m.Handle([]kinds.Change{noSecret("one"), noSecret("two")})
		if m.state() != before {
			t.Errorf("the stop changed %q to %q", before, m.state())
		}
		if err := m.check(); err != nil {
			t.Error(err)
		}
	})
}

func (m *mesh) expect(t *testing.T, state, statuses, codes string) {
	t.Helper()
	synctest.Wait()
	if got := m.state(); got != state {
		t.Errorf("in force: %q, want %q", got, state)
	}
	if got := m.statuses(); got != statuses {
		t.Errorf("clusters: %q, want %q", got, statuses)
	}
	if got := m.codes(); got != codes {
		t.Errorf("findings: %q, want %q", got, codes)
	}
	if err := m.check(); err != nil {
		t.Error(err)
	}
}

// What a source finds of its cluster is found.
func TestFindingsOfSources(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.Handle([]kinds.Change{secret("one", 0, "b", "unwell")})
		synctest.Wait()
		if f := m.Findings(); len(f) == 0 || f[len(f)-1].Message != "unwell" {
			t.Errorf("findings %v", f)
		}
		m.Handle([]kinds.Change{noSecret("one")})
		synctest.Wait()
		if f := m.Findings(); len(f) != 0 {
			t.Errorf("findings %v of a cluster that is gone", f)
		}
	})
}

func TestAddChangeRemove(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.write("b1", "x", "1")
		m.servers.write("b1", "y", "2")
		m.servers.write("c1", "x", "3")
		other := secret("other", 0, "d", "b1")
		other.Object.Labels = nil
		elsewhere := secret("one", 0, "d", "b1")
		elsewhere.Namespace, elsewhere.Object.Namespace = "default", "default"
		remote := secret("one", 0, "d", "b1")
		remote.Cluster, remote.Object.Cluster = "b", "b"
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1"), other, elsewhere, remote})
		m.expect(t, "b: x=1 y=2", "b=synced", "")
		if c := m.Clusters()[0]; c.SecretName != "istio-system/one" {
			t.Errorf("secret %s", c.SecretName)
		}
		if !m.HasSynced() || m.calls != 1 {
			t.Fatalf("synced %t, %d calls", m.HasSynced(), m.calls)
		}

		m.Handle([]kinds.Change{secret("one", 0, "b", "b1", "c", "c1")})
		m.expect(t, "b: x=1 y=2; c: x=3", "b=synced c=synced", "")
		if n := len(m.servers.sources("b1")); n != 1 || m.calls != 2 {
			t.Errorf("%d sources of what did not change, %d calls", n, m.calls)
		}
		m.metric(t, "istiod_managed_clusters", 1, 2) // local, remote
		m.metric(t, "istiod_remote_cluster_sync_status", 0, 1, 0, 0, 0, 1, 0, 0)

		m.servers.write("b1", "y", "")
		m.servers.write("c1", "z", "9")
		m.expect(t, "b: x=1; c: x=3 z=9", "b=synced c=synced", "")
		m.Handle([]kinds.Change{secret("one", 0, "c", "c1")})
		m.expect(t, "c: x=3 z=9", "c=synced", "")
		unlabelled := secret("one", 0, "c", "c1")
		unlabelled.Object.Labels = nil
		m.Handle([]kinds.Change{unlabelled})
		m.expect(t, "", "", "")
		m.metric(t, "istiod_remote_cluster_sync_status")
		if n := len(m.servers.sources("")); n > 0 {
			t.Errorf("%d sources run on", n)
		}
	})
}

func TestNoSecrets(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		synctest.Wait()
		if m.HasSynced() {
			t.Error("synced before the Secrets are known")
		}
		m.Handle(nil)
		m.expect(t, "", "", "")
		if m.calls != 1 {
			t.Errorf("%d calls", m.calls)
		}
	})
}

func TestSecretsBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh()
		m.servers.write("c1", "x", "1")
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1")})
		m.Handle([]kinds.Change{secret("one", 0, "c", "c1")})
		m.expect(t, "", "", "")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		m.expect(t, "c: x=1", "c=synced", "")
		cancel()
		<-done
	})
}

func TestReplacedByDifference(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		for server, content := range map[string][]string{
			"b1": {"same", "1", "old", "1", "x", "1"}, "hang2": {"same", "1", "new", "1", "x", "2"},
		} {
			for i := 0; i < len(content); i += 2 {
				m.servers.write(server, content[i], content[i+1])
			}
		}
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1")})
		synctest.Wait()
		same := m.objects[object("b", "same", "").Key]

		m.Handle([]kinds.Change{secret("one", 0, "b", "hang2")})
		m.expect(t, "b: old=1 same=1 x=1", "b=synced", "")
		m.servers.write("b1", "x", "5") // the first source goes on
		m.expect(t, "b: old=1 same=1 x=5", "b=synced", "")
		time.Sleep(30 * time.Second)
		m.expect(t, "b: old=1 same=1 x=5", "b=synced", "ClusterTimeout one b")

		calls := m.calls
		close(m.servers.hang["hang2"])
		m.expect(t, "b: new=1 same=1 x=2", "b=synced", "")
		if m.calls != calls+1 || m.objects[same.Key] != same {
			t.Errorf("%d calls for the replacement; what did not change is another object: %t", m.calls-calls, m.objects[same.Key] != same)
		}
		if n := len(m.servers.sources("b1")); n > 0 {
			t.Errorf("%d sources of the old kubeconfig", n)
		}
	})
}

func TestBadKeepsTheLastGood(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.write("b1", "x", "1")
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1")})
		synctest.Wait()
		for _, server := range []string{"bad1", "panic1", ""} {
			m.Handle([]kinds.Change{secret("one", 0, "b", server)})
			m.expect(t, "b: x=1", "b=synced", "ClusterNotConnected one b")
			if d := m.Findings()[0]; server == "bad1" &&
				!strings.Contains(d.Message, `read bad1: the token "[redacted]"bad1 has no use; the kubeconfig before`) {
				t.Errorf("message %q", d.Message)
			}
		}
		m.Handle([]kinds.Change{secret("one", 0, "b", "hang1")})
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1")}) // back
		m.servers.write("b1", "x", "2")
		m.expect(t, "b: x=2", "b=synced", "")
		if n := len(m.servers.sources("")); n != 1 {
			t.Errorf("%d sources", n)
		}
		m.Handle([]kinds.Change{noSecret("one"), secret("two", 0, "b", "bad2")}) // still the same cluster
		m.expect(t, "b: x=2", "b=synced", "ClusterNotConnected two b")
		if !strings.Contains(m.log.String(), "recovered from a panic") {
			t.Error("the panic is not logged")
		}
	})
}

func TestDuplicatesAndOwn(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.write("b1", "x", "1")
		m.servers.write("b2", "x", "2")
		m.Handle([]kinds.Change{secret("older", 9, "b", "b1", "own", "b1"), secret("a", 1, "b", "b2"), secret("b", 1, "b", "b1")})
		m.expect(t, "b: x=1", "b=synced", "DuplicateCluster a b, DuplicateCluster b b, OwnCluster older own")
		if d := m.Findings()[0]; d.String() != "warning: Secret istio-system/a: data.b: "+
			"cluster b is already in Secret istio-system/older, which comes first and is used; "+
			"remove one of the two [DuplicateCluster]" {
			t.Errorf("finding %s", d)
		}
		m.Handle([]kinds.Change{noSecret("older")})
		m.expect(t, "b: x=2", "b=synced", "DuplicateCluster b b")
		calls := m.calls
		m.Handle([]kinds.Change{noSecret("a")})
		m.expect(t, "b: x=1", "b=synced", "")
		m.Handle([]kinds.Change{noSecret("b"), secret("c", 0, "b", "b1")}) // the same kubeconfig by another name
		m.expect(t, "b: x=1", "b=synced", "")
		if c := m.Clusters()[0]; m.calls != calls+1 || c.SecretName != "istio-system/c" {
			t.Errorf("%d calls, secret %s", m.calls-calls, c.SecretName)
		}
	})
}

func TestReadinessWaitsNoLongerThanTheTimeout(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.write("b1", "x", "1")
		m.servers.write("hang1", "y", "1")
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1", "c", "hang1", "d", "bad1")})
		m.expect(t, "", "b=synced c=syncing d=closed", "ClusterNotConnected one d")
		time.Sleep(20 * time.Second)
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1", "c", "hang2", "d", "bad1", "e", "hang3")}) // gains no time
		time.Sleep(10*time.Second - time.Nanosecond)
		if a := strings.Join(m.Awaited(), " "); m.HasSynced() || a != "c" {
			t.Errorf("synced %t, awaited %q", m.HasSynced(), a)
		}
		m.expect(t, "", "b=synced c=syncing d=closed e=syncing", "ClusterNotConnected one d")
		time.Sleep(time.Nanosecond)
		m.expect(t, "b: x=1", "b=synced c=syncing d=closed e=syncing", "ClusterNotConnected one d")
		if !m.HasSynced() {
			t.Error("an unreachable cluster holds up readiness")
		}
		time.Sleep(20 * time.Second)
		m.expect(t, "b: x=1", "b=synced c=timeout d=closed e=timeout", "ClusterTimeout one c, ClusterNotConnected one d, ClusterTimeout one e")
		m.metric(t, "remote_cluster_sync_timeouts_total", 3) // d too, which never was there
		m.metric(                                            // closed, synced, syncing, timeout of each cluster
			t, "istiod_remote_cluster_sync_status", 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1,
		)

		m.servers.write("hang2", "z", "1")
		close(m.servers.hang["hang2"])
		m.expect(t, "b: x=1; c: z=1", "b=synced c=synced d=closed e=timeout", "ClusterNotConnected one d, ClusterTimeout one e")
	})
}

func TestAwaitedClusterGoes(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.Handle([]kinds.Change{secret("one", 0, "c", "hang1")})
		synctest.Wait()
		m.Handle([]kinds.Change{noSecret("one")})
		m.expect(t, "", "", "")
		if !m.HasSynced() {
			t.Error("a cluster that is gone is awaited")
		}
	})
}

// A source that ends is made again, with growing pauses; what it had stays, and what changed meanwhile comes as a
// difference.
func TestSourceEnds(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.write("b1", "x", "1")
		m.servers.write("b1", "y", "1")
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1")})
		synctest.Wait()
		first := m.servers.sources("b1")[0]
		first.crash <- errors.New("refused: " + token)
		m.expect(t, "b: x=1 y=1", "b=closed", "ClusterClosed one b")
		m.servers.write("b1", "x", "")
		m.servers.write("b1", "z", "1")
		first.h(nil) // it is heard no longer
		time.Sleep(time.Second - time.Nanosecond)
		m.expect(t, "b: x=1 y=1", "b=closed", "ClusterClosed one b")
		time.Sleep(time.Nanosecond)
		m.expect(t, "b: y=1 z=1", "b=synced", "")
		first.h(nil)
		m.expect(t, "b: y=1 z=1", "b=synced", "")
		m.servers.sources("b1")[0].crash <- nil
		m.expect(t, "b: y=1 z=1", "b=closed", "ClusterClosed one b")
		m.Handle([]kinds.Change{noSecret("one")})
		m.expect(t, "", "", "")
	})
}

func TestPausesGrowUntilASync(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.Handle([]kinds.Change{secret("one", 0, "b", "hang1")})
		crash := func() {
			t.Helper()
			synctest.Wait()
			m.servers.sources("hang1")[0].crash <- errors.New("lost")
			synctest.Wait()
		}
		pause := func(d time.Duration) {
			t.Helper()
			time.Sleep(d - time.Nanosecond)
			synctest.Wait()
			before := len(m.servers.sources("hang1"))
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if after := len(m.servers.sources("hang1")); before != 0 || after != 1 {
				t.Errorf("%d sources just before %s, %d then", before, d, after)
			}
		}
		for _, s := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			crash()
			pause(s * time.Second)
		}
		m.expect(t, "", "b=closed", "ClusterNotConnected one b")
		close(m.servers.hang["hang1"])
		m.expect(t, "", "b=synced", "")
		crash()
		pause(time.Second)
	})
}

func TestForeignKeysAreLeftOut(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.rogue = true
		m.servers.write("b1", "x", "1")
		m.Handle([]kinds.Change{secret("one", 0, "b", "b1")})
		m.expect(t, "b: x=1", "b=synced", "")
		if !strings.Contains(m.log.String(), "level=ERROR") {
			t.Error("nothing is logged")
		}
	})
}

// Secrets from files may hold stringData, which an API server would have turned into data.
func TestStringData(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		m.servers.write("b1", "x", "1")
		s := secret("one", 0)
		s.Object.Spec.(*corev1.Secret).StringData = map[string]string{"b": string(kubeconfig("b1"))}
		m.Handle([]kinds.Change{s})
		m.expect(t, "b: x=1", "b=synced", "")
	})
}
