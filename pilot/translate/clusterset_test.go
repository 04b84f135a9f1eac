package translate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// newSetWorld returns a world with settings for the Multi-Cluster Services API.
func newSetWorld(t tb, o clusterset.Options) *world {
	w := newWorldOf(t, snapshot.Options{Cluster: "Kubernetes", Mesh: mesh.Default()})
	w.registry = newRegistry(kube.Options{Controllers: true}, nil, o)
	return w
}

// setProxies returns a proxy of each cluster, which serves web there.
func setProxies() map[string]*node.Proxy {
	proxy := func(name, ip, cluster, on string) *node.Proxy {
		return &node.Proxy{
			Type: node.Sidecar, ID: name + ".a", Name: name, Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{ip}, Cluster: cluster,
			NodeName: on, Interception: node.Redirect, MeshID: "cluster.local", Capabilities: everything, Labels: map[string]string{"app": "web"},
		}
	}
	return map[string]*node.Proxy{
		"c1": proxy("web-1", "10.1.0.1", "Kubernetes", "k1-0"), "c2": proxy("web-2", "10.2.0.1", "remote", "k2-0"),
	}
}

// TestSets compares with the facts of what a real istiod with two API servers sent these proxies: endpoints of
// clusters, services of inbound clusters, domains of virtual hosts, and name tables. Pods of headless Services are
// confined too: istiod sends listeners and names of all of them.
func TestSets(t *testing.T) {
	own, remote := objects(t, "own.yaml", read(t, "testdata/clusterset/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/clusterset/remote.yaml")))
	for name, c := range map[string]struct {
		o        clusterset.Options
		confined map[string]string // the address of a headless Service's pod that istiod sends the proxy, by proxy
	}{
		"discovery": {clusterset.Options{Discovery: true}, map[string]string{"c2": "10.1.3.1"}},
		"hosts":     {clusterset.Options{Discovery: true, Hosts: true}, map[string]string{"c2": "10.1.3.1"}},
		"local": {
			clusterset.Options{Discovery: true, Hosts: true, ClusterLocal: true}, map[string]string{"c1": "10.2.3.1", "c2": "10.1.3.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetWorld(t, c.o).apply(slices.Concat(own, remote)...)
			tr, people := newTranslator(0), setProxies()
			tr.Prepare(s)
			var got []string
			for _, who := range slices.Sorted(maps.Keys(people)) {
				got = append(got, setFacts(t, who, sent(t, tr, s, people[who]))...)
				for r := range tr.Wildcard(s, tr.ResolveCohort(s, people[who]), envoy.NameTableType).All {
					for line := range strings.Lines(nameTable(r.Value())) {
						got = append(got, who+" name "+strings.TrimSpace(line))
					}
				}
			}
			want := strings.Split(strings.TrimSpace(string(read(t, "testdata", "clusterset", name+".txt"))), "\n")
			for who, ip := range c.confined {
				listener := slices.Index(want, who+" listener "+ip+"_9000")
				name := slices.IndexFunc(want, func(l string) bool {
					return strings.HasPrefix(l, who+" name ") && strings.HasSuffix(l, ":_head.a.svc.cluster.local")
				})
				if listener < 0 || name < 0 || !strings.Contains(want[name], ip) {
					t.Fatalf("istiod does not send %s the pod %s of the headless Service", who, ip)
				}
				want[name] = strings.NewReplacer(","+ip, "", ip+",", "").Replace(want[name])
				want = slices.Delete(want, listener, listener+1)
			}
			if d := gocmp.Diff(want, got); d != "" {
				t.Errorf("(-real +ours):\n%s", d)
			}
		})
	}
}

// setFacts returns what a proxy is sent of services, one line each.
func setFacts(t *testing.T, who string, c configByType) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, who+" "+fmt.Sprintf(format, args...)) }
	for name, r := range c["cds"] {
		m := decode(t, r).(*clusterv3.Cluster)
		if strings.HasPrefix(name, "inbound|") {
			for _, s := range m.GetMetadata().GetFilterMetadata()["istio"].GetFields()["services"].GetListValue().GetValues() {
				f := s.GetStructValue().GetFields()
				add("%s serves %s (%s of %s)", name, f["host"].GetStringValue(), f["name"].GetStringValue(), f["namespace"].GetStringValue())
			}
		}
		if !strings.HasPrefix(name, "outbound|") {
			continue
		}
		a := m.LoadAssignment
		if r := c["eds"][name]; r != nil {
			a = decode(t, r).(*endpointv3.ClusterLoadAssignment)
		}
		add("%s is %s", name, m.GetType())
		for _, l := range localityFacts(a) {
			add("%s at %s", name, l)
		}
	}
	for _, name := range []string{"80"} {
		for _, host := range decode(t, c["rds"][name]).(*routev3.RouteConfiguration).VirtualHosts {
			domains := slices.Clone(host.Domains)
			slices.Sort(domains)
			add("route %s, %s: %s", name, host.Name, strings.Join(domains, " "))
		}
	}
	for name := range c["lds"] {
		if strings.HasSuffix(name, "_9000") {
			add("listener %s", name)
		}
	}
	slices.Sort(out)
	return out
}

// TestSetsChange exports a service and takes the export back: proxies of the other cluster have what they had before,
// and nothing else changes.
func TestSetsChange(t *testing.T) {
	own, remote := objects(t, "own.yaml", read(t, "testdata/clusterset/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/clusterset/remote.yaml")))
	w := newSetWorld(t, clusterset.Options{Discovery: true, Hosts: true})
	before := w.apply(slices.Concat(own, remote)...)
	tr, people := newTranslator(0), setProxies()
	export := objects(t, "export.yaml", []byte(`apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: web, namespace: a}`))
	was := map[string]configByType{}
	for who, p := range people {
		was[who] = sent(t, tr, before, p)
	}
	changed := func(s *snapshot.Snapshot) (all []string) {
		tr.Prepare(s)
		for who, p := range people {
			for typ, resources := range sent(t, tr, s, p) {
				for name, r := range resources {
					if last := was[who][typ][name]; last == nil || r.Version != last.Version {
						all = append(all, who+" "+typ+" "+name)
					}
				}
			}
		}
		slices.Sort(all)
		return all
	}
	const local, set = " eds outbound|80||web.a.svc.cluster.local", " eds outbound|80||web.a.svc.clusterset.local"
	if d := gocmp.Diff([]string{"c2" + local, "c2" + set}, changed(w.apply(export...))); d != "" {
		t.Errorf("after the export (-want +got):\n%s", d)
	}
	if d := changed(w.apply(deletions(export)...)); len(d) > 0 {
		t.Errorf("after its deletion: %v", d)
	}
}
