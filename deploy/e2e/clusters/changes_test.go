package clusters

import (
	"fmt"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// testChanges changes the first cluster through its API under load, and traffic follows.
func testChanges(t *testing.T, m *mesh) {
	clients := []*world.Running{m.own.Pod("client"), m.sotw.Pod("client-sotw")}
	t.Run("readiness", func(t *testing.T) {
		tr := begin(t, echoAddr, "echo", clients...)
		for range 2 {
			apply(t, m.one, slice("echo", "echo-2", "10.10.0.22", unready))
			tr.Silent(t, "echo-2")
			apply(t, m.one, slice("echo", "echo-2", "10.10.0.22", ready))
			tr.Answers(t, "echo-2")
		}
	})
	t.Run("a pod comes and goes", func(t *testing.T) {
		tr := begin(t, echoAddr, "echo", clients...)
		const name, addr = "echo-5", "10.10.0.25"
		pod := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: mesh, labels: {app: echo, version: v1}}
spec:
  serviceAccountName: echo
  containers:
  - {name: app, image: echo, args: ["-http=8080"]}
status:
  phase: Running
  podIP: %[2]s
  podIPs: [{ip: %[2]s}]
  conditions: [{type: Ready, status: "True"}]
`, name, addr)
		// The slice comes first, as it may in a cluster: the endpoint waits for its pod.
		apply(t, m.one, slice("echo", name, addr, unready))
		apply(t, m.one, pod)
		running := m.run(t.Context(), t, pod, "", true, func(string) bool { return true })
		apply(t, m.one, slice("echo", name, addr, ready))
		tr.Answers(t, name)
		apply(t, m.one, slice("echo", name, addr, stopping))
		tr.Silent(t, name)
		running.Remove(name)
		must.Succeed(t, m.one.Delete(t.Context(), []byte(pod+slice("echo", name, addr, ready))))
		tr.Answers(t, "echo-1")
	})
	t.Run("weights", func(t *testing.T) {
		tr := begin(t, splitAddr, "split", clients...)
		tr.Silent(t, "echo-2")
		for _, second := range []int{25, 75} {
			apply(t, m.one, weights(second))
			share(t, tr, "echo-2", float64(second)/100)
		}
		apply(t, m.one, weights(100))
		tr.Silent(t, "echo-1")
		apply(t, m.one, weights(0))
		tr.Silent(t, "echo-2")
	})
	m.healthy(t)
}

// away is how long an API server is down at least.
const away = 2 * time.Second

// testKilled ends the first cluster's API server as a crash would, under load, and starts it again.
func testKilled(t *testing.T, m *mesh) {
	tr := begin(t, echoAddr, "echo", m.own.Pod("client"), m.sotw.Pod("client-sotw"))
	tr.Answers(t, "echo-2")
	m.still(t, func() {
		m.one.KillAPIServer()
		time.Sleep(away)
		must.Succeed(t, m.one.StartAPIServer(t.Context()))
	})
	apply(t, m.one, slice("echo", "echo-2", "10.10.0.22", unready))
	tr.Silent(t, "echo-2")
	apply(t, m.one, slice("echo", "echo-2", "10.10.0.22", ready))
	tr.Answers(t, "echo-2")
}
