package inspect

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// TestMachines: a virtual machine sends requests by the name of its WorkloadEntry, of its host, once it is connected,
// and of its WorkloadGroup.
func TestMachines(t *testing.T) {
	const text = `{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: vm, labels: {app: web, security.istio.io/tlsMode: istio}},
  spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1, phase: Running, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: vm},
  spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: vm},
  spec: {clusterIP: 10.96.0.11, selector: {app: db}, ports: [{name: http, port: 80}]}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadGroup, metadata: {name: db, namespace: vm},
  spec: {metadata: {labels: {app: db}}, template: {serviceAccount: db}}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: db-10.0.9.1, namespace: vm, labels: {app: db},
  annotations: {istio.io/autoRegistrationGroup: db}}, spec: {address: 10.0.9.1, serviceAccount: db, labels: {app: db}}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: plain, namespace: vm}, spec: {address: 10.0.9.2}}
`
	o := ingest.Options{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), ConfigDir: t.TempDir(), Namespace: "istio-system",
		Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(),
	}
	must.Succeed(t, os.WriteFile(filepath.Join(o.ConfigDir, "mesh.yaml"), []byte(text), 0o644))
	i, err := Read(t.Context(), o, catalog.Features())
	must.Succeed(t, err)
	asks := func(source, host string) *Way {
		t.Helper()
		w, err := i.Why(Query{Source: source, Host: host})
		must.Succeed(t, err)
		if !w.Reached() || len(w.Arrivals) != 1 {
			t.Fatalf("%s -> %s: %+v", source, host, w)
		}
		return w
	}
	for _, source := range []string{"db-10.0.9.1.vm", "db.vm"} {
		if a := asks(source, "web").Arrivals[0]; a.Pod != "web-1.vm" || a.Identity != "spiffe://cluster.local/ns/vm/sa/db" {
			t.Errorf("%s: %+v", source, a)
		}
	}
	if _, err := i.Why(Query{Source: "plain.vm", Host: "web"}); err == nil ||
		!strings.Contains(err.Error(), "there are db-10.0.9.1.vm, db.vm, web-1.vm") && !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a WorkloadEntry without a proxy: %v", err)
	}
	// The machine connects, under the name of its host.
	host := &node.Proxy{
		Type: node.Sidecar, ID: "host-1.vm", Name: "host-1", Namespace: "vm", Domain: "vm.svc.cluster.local",
		IPs:     []string{netip.MustParseAddr("10.0.9.1").String()},
		Account: "db", Labels: map[string]string{"app": "db"}, Interception: node.Redirect,
	}
	types := map[string]session.TypeStatus{envoy.ListenerType: {LastError: "no"}}
	i.server = &streams{noDumps{}, map[string]xds.Client{host.ID: {Proxy: host, Types: types}}, map[string]*node.Proxy{host.ID: host}}
	for _, w := range []*Way{asks("db-10.0.9.1.vm", "web"), asks("host-1.vm", "web"), asks("web-1.vm", "db")} {
		if !slices.ContainsFunc(w.Notes, func(n string) bool { return strings.HasSuffix(n, "has rejected LDS: no") }) {
			t.Errorf("it is not known that the machine is connected: %q", w.Notes)
		}
		for _, n := range w.Notes {
			if strings.Contains(n, "is not connected") && !strings.Contains(n, "web-1.vm") {
				t.Error(n)
			}
		}
	}
}

// noDumps is a Discovery whose proxies have asked for nothing.
type noDumps struct{}

func (noDumps) Clients() []xds.Client                         { return nil }
func (noDumps) Dump(string, string) ([]*envoy.Resource, bool) { return nil, false }
