package translate_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// inCluster returns changes as they come from a remote cluster.
func inCluster(cluster string, changes []kinds.Change) []kinds.Change {
	out := slices.Clone(changes)
	for i := range out {
		o := *out[i].Object
		o.Cluster = cluster
		out[i] = kinds.Change{Key: o.Key, Object: &o}
	}
	return out
}

func deletions(changes []kinds.Change) []kinds.Change {
	out := slices.Clone(changes)
	for i := range out {
		out[i].Object = nil
	}
	return out
}

// twoClusterProxies returns proxies of a mesh of two clusters. Of the last two, one names an unknown cluster, and one
// has the address of a pod of another cluster.
func twoClusterProxies() map[string]*node.Proxy {
	sidecar := func(name, ip, cluster, on string, locality ...string) *node.Proxy {
		p := &node.Proxy{
			Type: node.Sidecar, ID: name + ".a", Name: name, Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{ip},
			Cluster: cluster, NodeName: on,
			Interception: node.Redirect, MeshID: "cluster.local", Capabilities: everything, Labels: map[string]string{"app": "web"},
		}
		copy(p.Locality[:], locality)
		return p
	}
	return map[string]*node.Proxy{
		"own":    sidecar("web-0", "10.1.0.1", "Kubernetes", "node-1", "r1", "z1"),
		"remote": sidecar("web-0", "10.2.0.1", "remote", "node-1", "r1", "z1"),
		"afar":   sidecar("web-9", "10.2.0.2", "remote", "node-r"), "sub": sidecar("sub-0", "10.1.0.41", "Kubernetes", "sub-1", "r9"),
		"far":     sidecar("sub-4", "10.1.0.45", "Kubernetes", "sub-1"),
		"nowhere": sidecar("web-1", "10.1.0.2", "nowhere", "node-2", "r1", "z2"),
		"liar":    sidecar("web-5", "10.1.0.3", "remote", "node-1", "r1", "z1"),
	}
}

const clusterLocal = `
serviceSettings:
- settings: {clusterLocal: true}
  hosts: ["*.a.svc.cluster.local"]
- settings: {clusterLocal: false}
  hosts: ["both.a.svc.cluster.local", "dns.kube-system.svc.cluster.local"]
`

// TestTwoClusters compares with the facts of what a real istiod with two API servers sent these proxies: first as it
// is, and then with some services local to their cluster.
func TestTwoClusters(t *testing.T) {
	own, remote := objects(t, "own.yaml", read(t, "testdata/clusters/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/clusters/remote.yaml")))
	w := newWorld(t, mesh.Default())
	s := w.apply(slices.Concat(own, remote)...)
	tr, people := newTranslator(0), twoClusterProxies()
	var got []string
	for _, name := range []string{"own", "remote", "afar", "nowhere", "liar", "sub", "far"} {
		got = append(got, factLines(t, "plain "+name+" ", sent(t, tr, s, people[name]))...)
	}
	local, found := mesh.ParseOver(mesh.Default(), "mesh", []byte(clusterLocal))
	if local == nil || len(found) > 0 {
		t.Fatal(found)
	}
	w.builder.SetMesh(local)
	s = w.apply()
	for _, name := range []string{"own", "remote", "nowhere"} {
		got = append(got, factLines(t, "local "+name+" ", sent(t, tr, s, people[name]))...)
	}
	want := strings.Split(strings.TrimSpace(string(read(t, "testdata/clusters/facts.txt"))), "\n")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-real +ours):\n%s", d)
	}
}

// TestUnknownProxiesServeNothing has a proxy of an unknown cluster, and one with an address of another cluster's pod.
// Neither serves anything, whatever it claims to be.
func TestUnknownProxiesServeNothing(t *testing.T) {
	w := newWorld(t, mesh.Default())
	s := w.apply(slices.Concat(objects(t, "own.yaml", read(t, "testdata/clusters/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/clusters/remote.yaml"))))...)
	tr := newTranslator(0)
	for name, served := range map[string]bool{"own": true, "remote": true, "nowhere": false, "liar": false} {
		if targets := tr.ResolveCohort(s, twoClusterProxies()[name]).Inbound.Value().Targets; targets.Empty() == served {
			t.Errorf("%s serves %v", name, targets)
		}
	}
}

// TestClusterComesAndGoes adds and deletes a cluster, which leaves every proxy with the same bytes, and adds it again
// object by object.
func TestClusterComesAndGoes(t *testing.T) {
	own, remote := objects(t, "own.yaml", read(t, "testdata/clusters/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/clusters/remote.yaml")))
	memo := &references{seen: map[string][]string{}}
	tr, w := newTranslator(0), newWorld(t, mesh.Default())
	configs := func() map[string]config {
		s, out := w.apply(), map[string]config{}
		for name, p := range twoClusterProxies() {
			out[name] = memo.config(t, tr, s, p)
		}
		return out
	}
	compare := func(what string, a, b map[string]config) {
		t.Helper()
		for name := range a {
			if d := differences(a[name], b[name]); len(d) > 0 {
				t.Errorf("%s: %s is sent otherwise: %v", what, name, d)
			}
		}
	}
	w.apply(own...)
	before := configs()
	w.apply(remote...)
	both := configs()
	if len(differences(before["own"], both["own"])) == 0 {
		t.Fatal("the cluster changed nothing")
	}
	w.apply(deletions(remote)...)
	compare("after the cluster went", before, configs())
	for _, c := range remote {
		w.apply(c)
	}
	compare("after it came again, one by one", both, configs())
}

var exact = regexp.MustCompile(`"exact": *"([^"]+)"`)

// factLines returns what matters of a proxy's configuration in a mesh of several clusters, one fact per line.
func factLines(t *testing.T, head string, c configByType) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, head+fmt.Sprintf(format, args...)) }
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c["lds"])), func(n string) bool { return strings.HasPrefix(n, "virtual") })
	believed := !strings.Contains(head, "nowhere") && !strings.Contains(head, "liar")
	if believed { // for the real one leaves out the listeners of an address that a proxy claims, and serves what its labels claim
		add("listeners: %s", strings.Join(names, " "))
	}
	var inbound, weighted []string
	for _, name := range slices.Sorted(maps.Keys(c["cds"])) {
		if strings.HasPrefix(name, "inbound|") {
			inbound = append(inbound, name)
		}
		if decode(t, c["cds"][name]).(*clusterv3.Cluster).GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil {
			weighted = append(weighted, name)
		}
	}
	if believed {
		add("inbound: %s", strings.Join(inbound, " "))
	}
	add("locality weighted: %s", strings.Join(weighted, " "))
	for _, host := range []string{"both", "onlyremote", "mixed"} {
		for _, name := range slices.Sorted(maps.Keys(c["cds"])) {
			if !strings.HasSuffix(name, "||"+host+".a.svc.cluster.local") {
				continue
			}
			m := decode(t, c["cds"][name]).(*clusterv3.Cluster)
			var ids []string
			for _, id := range exact.FindAllStringSubmatch(protojson.Format(m), -1) {
				ids = append(ids, id[1])
			}
			slices.Sort(ids)
			add("%s %v %s", name, m.GetType(), strings.Join(slices.Compact(ids), " "))
		}
	}
	for _, h := range decode(t, c["rds"]["80"]).(*routev3.RouteConfiguration).VirtualHosts {
		if h.Name == "both.a.svc.cluster.local:80" {
			add("domains: %s", strings.Join(h.Domains, " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c["eds"])) {
		var groups []string
		for _, g := range decode(t, c["eds"][name]).(*endpointv3.ClusterLoadAssignment).Endpoints {
			var addresses []string
			for _, e := range g.LbEndpoints {
				a := e.GetEndpoint().GetAddress().GetSocketAddress()
				addresses = append(addresses, fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()))
			}
			slices.Sort(addresses)
			l := g.Locality
			groups = append(groups, fmt.Sprintf("%s/%s/%s priority %d weight %d [%s]", l.Region, l.Zone, l.SubZone, g.Priority,
				g.LoadBalancingWeight.GetValue(), strings.Join(addresses, " ")))
		}
		slices.Sort(groups)
		add("%s: %s", name, strings.Join(groups, ", "))
	}
	return out
}

// TestHeadlessInOneCluster has a service that is headless in one cluster alone. There it has a listener for each
// address, so a new endpoint affects the listeners of that cluster's proxies.
func TestHeadlessInOneCluster(t *testing.T) {
	service := func(ip string) []kinds.Change {
		return objects(t, "service.yaml", []byte("{apiVersion: v1, kind: Service, metadata: {name: half, namespace: a}, spec: "+
			"{clusterIP: "+ip+", ports: [{name: tcp, port: 93}]}}"))
	}
	slice := func(addresses string) []kinds.Change {
		return inCluster("remote", objects(t, "slice.yaml",
			[]byte("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: half-x, namespace: a, labels: "+
				"{kubernetes.io/service-name: half}}, "+
				"addressType: IPv4, ports: [{name: tcp, port: 93}], endpoints: [{addresses: ["+addresses+"]}]}")))
	}
	w, tr := newWorld(t, mesh.Default()), newTranslator(0)
	tr.Prepare(w.apply(slices.Concat(service("10.64.0.9"), inCluster("remote", service("None")), slice("10.2.0.7"))...))
	s := w.apply(slice("10.2.0.7, 10.2.0.8")...)
	if !tr.Compare(s) || s.Diff.Triggers["headlessendpoint"] != 1 {
		t.Errorf("the delta does not tell the proxies of that cluster: %+v", s.Diff)
	}
	for name, want := range map[string]string{"own": "10.64.0.9_93", "remote": "10.2.0.7_93 10.2.0.8_93"} {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(sent(t, tr, s, twoClusterProxies()[name])["lds"])), func(n string) bool {
			return strings.HasPrefix(n, "virtual")
		})
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s listens on %s, want %s", name, got, want)
		}
	}
}
