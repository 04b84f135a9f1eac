package translate_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/aggregate"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// networkWorld is a mesh of several networks.
type networkWorld struct {
	*world
	networks *mesh.Networks
}

func newNetworkWorld(t tb, yaml string) *networkWorld {
	networks, found := mesh.ParseNetworks("networks", []byte(yaml))
	if networks == nil {
		t.Fatal(found)
	}
	named := func(id string) map[string][]registry.Gateway {
		out := map[string][]registry.Gateway{}
		for _, g := range networks.Services(id) {
			out[g.Service] = append(out[g.Service], registry.Gateway{Network: g.Network, Port: g.Port})
		}
		return out
	}
	services := aggregate.New(aggregate.Options{
		Kube: func(remote string) *kube.Registry {
			id := cmp.Or(remote, "Kubernetes")
			return kube.New(kube.Options{Cluster: id, Remote: remote != "", Controllers: true, Networks: networks.Of(id), Gateways: named(id)})
		},
		Entries: serviceentry.New(serviceentry.Options{Cluster: "Kubernetes"}),
	})
	return &networkWorld{&world{t: t, registry: services, builder: snapshot.NewBuilder(
		snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Catalog: catalog.Features()})}, networks}
}

func (i *networkWorld) apply(changes ...kinds.Change) *snapshot.Snapshot {
	i.builder.ApplyRegistry(i.registry.Apply(changes))
	i.builder.Apply(changes)
	gateways := i.registry.Gateways()
	for _, g := range i.networks.Gateways() {
		gateways = append(gateways, registry.Gateway{Network: g.Network, Address: g.Address, Port: g.Port})
	}
	for n, g := range gateways {
		if g.Address == "gw.example.test" {
			gateways[n].Address, g.Address = "192.0.2.71", "192.0.2.72"
			gateways = append(gateways, g)
		}
	}
	slices.SortFunc(gateways, registry.CompareGateways)
	i.builder.SetNetworks(gateways, i.networks.Ranges())
	return i.builder.Commit(time.Time{})
}

// networkProxies returns proxies in the networks of the mesh: in each one, in none, in one without a gateway, and a
// gateway for traffic from other networks.
func networkProxies() map[string]*node.Proxy {
	proxy := func(kind node.Type, name, namespace, ip, cluster, on, network string, labels map[string]string, view ...string) *node.Proxy {
		return &node.Proxy{
			Type: kind, ID: name + "." + namespace, Name: name, Namespace: namespace, Domain: namespace + ".svc.cluster.local",
			IPs: []string{ip}, Cluster: cluster, NodeName: on,
			Interception: node.Redirect, MeshID: "cluster.local", Capabilities: everything, Labels: labels, Network: network, NetworkView: view,
		}
	}
	cli, ew := map[string]string{"app": "cli"}, map[string]string{"istio": "ew"}
	return map[string]*node.Proxy{
		"c1-n1":   proxy(node.Sidecar, "cli", "a", "10.1.200.1", "Kubernetes", "k1-0", "n1", cli),
		"c1-none": proxy(node.Sidecar, "cli", "a", "10.1.200.1", "Kubernetes", "k1-0", "", cli),
		"c2-n2":   proxy(node.Sidecar, "cli2", "a", "10.2.200.1", "remote", "k2-0", "n2", cli),
		"c2-n9":   proxy(node.Sidecar, "cli2", "a", "10.2.200.1", "remote", "k2-0", "n9", cli),
		"ew":      proxy(node.Router, "ew-0", "istio-system", "10.1.201.1", "Kubernetes", "k1-0", "n1", ew, "n1"),
	}
}

// TestNetworks compares with the facts of what a real istiod with two API servers sent these proxies. Weights are
// relative within an assignment.
func TestNetworks(t *testing.T) {
	own, remote := objects(t, "own.yaml", read(t, "testdata/networks/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/networks/remote.yaml")))
	i := newNetworkWorld(t, string(read(t, "testdata/networks/networks.yaml")))
	s := i.apply(slices.Concat(own, remote)...)
	tr, people := newTranslator(0), networkProxies()
	var got []string
	for _, name := range slices.Sorted(maps.Keys(people)) {
		got = append(got, networkFacts(t, name, sent(t, tr, s, people[name]))...)
	}
	for _, g := range s.Networks.Gateways() {
		got = append(got, fmt.Sprintf("gateway of %s: %s:%d of cluster %s", g.Network, g.Address, g.Port, g.Cluster))
	}
	want := strings.Split(strings.TrimSpace(string(read(t, "testdata/networks/facts.txt"))), "\n")
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-real +ours):\n%s", d)
	}
}

// TestNetworksChange changes one network's gateways. Services without endpoints there keep their resources, and a mesh
// without gateways has again what it had before.
func TestNetworksChange(t *testing.T) {
	own, remote := objects(t, "own.yaml", read(t, "testdata/networks/own.yaml")),
		inCluster("remote", objects(t, "remote.yaml", read(t, "testdata/networks/remote.yaml")))
	i := newNetworkWorld(t, "{}")
	all := slices.Concat(own, remote)
	gateway := slices.IndexFunc(all, func(c kinds.Change) bool { return c.Name == "ewx" })
	before := i.apply(append(all[:gateway:gateway], all[gateway+1:]...)...)
	tr, p := newTranslator(0), networkProxies()["c1-n1"]
	was := sent(t, tr, before, p)
	after := i.apply(all[gateway])
	if !after.Diff.Full || after.Diff.Triggers["networks"] != 1 {
		t.Errorf("the diff does not have the gateway: %+v", after.Diff.Triggers)
	}
	is := sent(t, tr, after, p)
	var changed []string
	for name, r := range is["eds"] {
		if w := was["eds"][name]; w != nil && w.Version != r.Version {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	want := []string{
		"outbound|80|v1|web.a.svc.cluster.local", "outbound|80||many.example", "outbound|80||vms.a.svc.cluster.local",
		"outbound|80||vmsel.example", "outbound|80||web.a.svc.cluster.local",
	}
	if d := gocmp.Diff(want, changed); d != "" {
		t.Errorf("other assignments change (-want +got):\n%s", d)
	}
	again := sent(t, tr, i.apply(deletions(all[gateway:gateway+1])...), p)
	for name, r := range was["eds"] {
		if again["eds"][name].Version != r.Version {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// networkFacts returns how a proxy reaches the services of the mesh, one fact per line.
func networkFacts(t *testing.T, who string, c configByType) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, who+" "+fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(c["cds"])) {
		if !strings.HasPrefix(name, "outbound") || strings.HasSuffix(name, "istio-system.svc.cluster.local") {
			continue
		}
		m := decode(t, c["cds"][name]).(*clusterv3.Cluster)
		if strings.HasPrefix(name, "outbound_") {
			how := "as it is"
			if m.TransportSocket != nil || len(m.TransportSocketMatches) > 0 {
				how = "mTLS"
			}
			add("%s: %s", name, how)
		}
		a := m.LoadAssignment
		if r := c["eds"][name]; r != nil {
			a = decode(t, r).(*endpointv3.ClusterLoadAssignment)
		}
		for _, l := range localityFacts(a) {
			add("%s at %s", name, l)
		}
	}
	for name, r := range c["lds"] {
		if who != "ew" {
			continue
		}
		var to []string
		for _, chain := range decode(t, r).(*listenerv3.Listener).FilterChains {
			for _, server := range chain.GetFilterChainMatch().GetServerNames() {
				if !strings.HasSuffix(server, "istio-system.svc.cluster.local") {
					to = append(to, server)
				}
			}
		}
		slices.Sort(to)
		add("%s hands on: %s", name, strings.Join(to, " "))
	}
	slices.Sort(out)
	return out
}

// localityFacts returns what is in an assignment, one line for each locality.
func localityFacts(a *endpointv3.ClusterLoadAssignment) []string {
	whole := uint32(0)
	for _, g := range a.GetEndpoints() {
		for _, e := range g.LbEndpoints {
			for x, y := whole, e.LoadBalancingWeight.GetValue(); ; x, y = y, x%y {
				if whole = x; y == 0 {
					break
				}
			}
		}
	}
	var out []string
	for _, g := range a.GetEndpoints() {
		var hosts []string
		for _, e := range g.LbEndpoints {
			at, m := e.GetEndpoint().GetAddress().GetSocketAddress(), e.GetMetadata().GetFilterMetadata()
			secure := ""
			if m["envoy.transport_socket_match"] != nil {
				secure = " mtls"
			}
			hosts = append(hosts, fmt.Sprintf("%s:%d weight %d%s %s", at.Address, at.GetPortValue(), e.LoadBalancingWeight.GetValue()/whole,
				secure, m["istio"].Fields["workload"].GetStringValue()))
		}
		slices.Sort(hosts)
		l := g.Locality
		out = append(out, fmt.Sprintf("%s/%s/%s, priority %d: %s", l.Region, l.Zone, l.SubZone, g.Priority,
			cmp.Or(strings.Join(hosts, "; "), "nothing")))
	}
	return out
}
