package clusters

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// export writes all that the server reads from the first cluster into a directory, as the API server returns it.
func (m *mesh) export(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	for _, k := range kinds.All() {
		if k == kinds.Secret {
			continue // they name remote clusters, which a directory has not
		}
		list, err := m.one.Dynamic().Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}).
			List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // its CustomResourceDefinition is not installed
		}
		must.Succeed(t, err)
		for _, o := range list.Items {
			text, err := json.Marshal(o.Object)
			must.Succeed(t, err)
			fmt.Fprintf(&out, "---\n%s\n", text)
		}
	}
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "world.yaml"), out.Bytes(), 0o644))
	return dir
}

// testMoves replaces the control plane by one that reads the same from elsewhere, there and back, under load: no Envoy
// changes anything.
func testMoves(t *testing.T, m *mesh) {
	dir, api := m.export(t), m.one.Kubeconfig()
	tr := begin(t, echoAddr, "echo", m.own.Pod("client"))
	begin(t, splitAddr, "split", m.own.Pod("client"))
	// What Envoys make on the first request only is there now.
	tr.Answers(t, "echo-1")
	tr.Answers(t, "echo-2")

	m.pilot.Stop()
	m.move(t, "from files to the API server", "", api)
	if sent := m.sent(t); sent != 0 {
		t.Errorf("%d bytes of resources were sent to Envoys that have them all", sent)
	}

	m.sotw = m.run(t.Context(), t, firstCluster, "", false, func(name string) bool { return name == "client-sotw" })
	begin(t, echoAddr, "echo", m.sotw.Pod("client-sotw"))
	begin(t, splitAddr, "split", m.sotw.Pod("client-sotw"))
	m.pilot.Kill()
	m.move(t, "back to files", dir, "")
	m.pilot.Kill()
	m.move(t, "services from the API server, the rest from files", dir, api)
	m.pilot.Stop()
	m.move(t, "to the API server", "", api)
	m.healthy(t)
}

// unmoved are the statistics of an Envoy that do not change without a change of configuration: listeners and clusters
// that are added, removed, replaced or drained.
const unmoved = `^(listener_manager\.(listener_(added|modified|removed|in_place_updated|create_success)` +
	`|total_filter_chains_draining|total_listeners_draining)` +
	`|cluster_manager\.cluster_(added|modified|removed|updated)` +
	`|.*(rds|vhds).*\.config_reload|cluster\.(in|out)bound.*\.membership_change|.*\.downstream_cx_drain_close|.*\.update_rejected)$`

// updates are the statistics that count responses of the control plane.
const updates = `(cds|lds|rds\..*|vhds\..*|cluster\.outbound.*)\.update_success$`

// move restarts the control plane with other sources. Every Envoy must reconnect and keep its configuration.
func (m *mesh) move(t *testing.T, what, configDir, kubeconfig string) {
	t.Helper()
	taken := m.stats(t, updates)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m.still(t, func() {
		must.Succeed(t, m.pilot.RestartFrom(ctx, configDir, kubeconfig))
		m.connected(t)
	})
	t.Logf("%s: answers of the control plane: %v", what, changed(taken, m.stats(t, updates)))
}

// still wants no Envoy of the first cluster to change anything while something is done.
func (m *mesh) still(t *testing.T, do func()) {
	t.Helper()
	before := m.stats(t, unmoved)
	if len(before) < 20 {
		t.Fatalf("only %d statistics", len(before))
	}
	do()
	time.Sleep(500 * time.Millisecond) // time for unwanted changes to arrive
	for _, c := range changed(before, m.stats(t, unmoved)) {
		t.Error(c)
	}
}

// changed returns the differences.
func changed(before, now map[string]int) []string {
	var list []string
	for name, n := range now {
		if n != before[name] {
			list = append(list, fmt.Sprintf("%s was %d, is %d", name, before[name], n))
		}
	}
	slices.Sort(list)
	return list
}

// stats reads statistics of all Envoys of the first cluster.
func (m *mesh) stats(t *testing.T, filter string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, name := range []string{"client", "client-sotw", "echo-1", "echo-2"} {
		w := m.own
		if name == "client-sotw" {
			w = m.sotw
		}
		if w == nil {
			continue
		}
		stats, err := w.Pod(name).Proxy.Stats(t.Context(), filter)
		must.Succeed(t, err)
		for stat, n := range stats {
			all[name+" "+stat] = n
		}
	}
	return all
}

// connected waits until every Envoy has asked the control plane for all that it needs.
func (m *mesh) connected(t *testing.T) {
	t.Helper()
	want := 0
	for _, w := range []*world.World{m.own, m.sotw, m.remote} {
		if w != nil {
			want += w.Proxies()
		}
	}
	suite.Eventually(t, fmt.Sprintf("%d Envoys are connected", want), func() bool {
		connections := page[struct {
			Clients []struct {
				Watches map[string]any `json:"watches"`
			} `json:"clients"`
		}](t, m, "/debug/adsz")
		n := 0
		for _, c := range connections.Clients {
			if len(c.Watches) >= 4 { // clusters, endpoints, listeners, routes
				n++
			}
		}
		return n == want
	})
}

// sent is how many bytes of resources the control plane has sent to all.
func (m *mesh) sent(t *testing.T) int {
	t.Helper()
	resp, err := http.Get("http://" + m.pilot.Monitoring + "/metrics")
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	total, found := 0.0, false
	for line := range strings.Lines(string(body)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "} "); strings.HasPrefix(name, "pilot_xds_config_size_bytes_sum{") {
			n, err := strconv.ParseFloat(value, 64)
			must.Succeed(t, err)
			total, found = total+n, true
		}
	}
	if !found {
		t.Fatal("no metric of the size of responses")
	}
	return int(total)
}
