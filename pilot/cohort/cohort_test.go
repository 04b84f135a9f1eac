package cohort_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// secret is a label value that must not be in a key.
const secret = "tell-nobody"

func object(t *testing.T, kind *kinds.Kind, ns, name, spec string) *kinds.Object {
	t.Helper()
	o := &kinds.Object{Key: kinds.Key{Kind: kind, Namespace: ns, Name: name}, Spec: kind.New()}
	must.Succeed(t, protojson.Unmarshal([]byte(spec), o.Spec.(proto.Message)))
	return o
}

func pod(name, ip string, labels map[string]string) *registry.Workload {
	all := map[string]string{"app": "web"}
	maps.Copy(all, labels)
	return &registry.Workload{
		WorkloadKey: registry.WorkloadKey{Kind: kinds.Pod, Namespace: "a", Name: name}, Addresses: []string{ip}, Labels: all, Owner: "web",
		Ports:    map[string]uint32{"named": 8443},
		Locality: registry.Locality{Region: "r1"},
	}
}

var web = &registry.Service{
	Host: "web.a.svc.cluster.local", Namespace: "a", Name: "web", Selector: map[string]string{"app": "web"},
	Ports: []registry.Port{
		{Name: "http", Number: 80, TargetPort: "8080", Protocol: protocols.HTTP},
		{Name: "https", Number: 443, TargetPort: "named", Protocol: protocols.HTTPS},
		{Name: "gone", Number: 444, TargetPort: "unknown", Protocol: protocols.TCP},
		{Name: "udp", Number: 53, Protocol: protocols.UDP},
		{Name: "same", Number: 90, Protocol: protocols.TCP},
	},
}

func index(pods []*registry.Workload, objects ...*kinds.Object) *scope.Index {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "c", Mesh: mesh.Default(), Catalog: catalog.Features()})
	c := registry.Changes{Services: map[registry.ServiceKey]*registry.Service{web.Key(): web},
		Workloads: map[registry.WorkloadKey]*registry.Workload{}}
	for _, p := range pods {
		c.Workloads[p.WorkloadKey] = p
	}
	b.ApplyRegistry(c)
	for _, o := range objects {
		b.Apply([]kinds.Change{{Key: o.Key, Object: o}})
	}
	return scope.NewIndex(b.Commit(time.Time{}), nil)
}

func sidecar(name, ip string) *node.Proxy {
	return &node.Proxy{Type: node.Sidecar, ID: name + ".a", Name: name, Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{ip},
		Cluster: "c", MeshID: "m", Interception: node.Redirect}
}

func resolve(x *scope.Index, p *node.Proxy) cohort.Inputs {
	return cohort.Resolve(x, p, catalog.Features())
}

// shared returns the part of a key that a proxy shares with its cohort.
func shared(p cohort.Inputs) cohort.Inputs {
	p.Address = ""
	return p
}

// TestLabelsSplitOnlyWhereASelectorDoes checks that labels split a cohort only where a selector matches some of them.
func TestLabelsSplitOnlyWhereASelectorDoes(t *testing.T) {
	for _, c := range []struct {
		name    string
		objects []*kinds.Object
		same    bool
	}{
		{"nobody selects", nil, true},
		{"a rule for another label", []*kinds.Object{object(t, kinds.DestinationRule, "a", "r",
			`{"host":"x","workloadSelector":{"matchLabels":{"other":"x"}}}`)}, true},
		{"a rule of another namespace", []*kinds.Object{object(t, kinds.DestinationRule, "b", "r",
			`{"host":"x","workloadSelector":{"matchLabels":{"team":"`+secret+`"}}}`)}, true},
		{"a rule", []*kinds.Object{object(t, kinds.DestinationRule, "a", "r",
			`{"host":"x","workloadSelector":{"matchLabels":{"team":"`+secret+`"}}}`)}, false},
		{"a rule for both", []*kinds.Object{object(t, kinds.DestinationRule, "a", "r",
			`{"host":"x","workloadSelector":{"matchLabels":{"app":"web"}}}`)}, true},
		{"a Sidecar", []*kinds.Object{object(t, kinds.Sidecar, "a", "s", `{"workloadSelector":{"labels":{"team":"`+secret+`"}}}`)}, false},
		{"a PeerAuthentication", []*kinds.Object{object(t, kinds.PeerAuthentication, "a", "p",
			`{"selector":{"matchLabels":{"team":"`+secret+`"}}}`)}, false},
		{"a PeerAuthentication for all", []*kinds.Object{object(t, kinds.PeerAuthentication, "a", "p", `{}`)}, true},
		{"source labels", []*kinds.Object{object(t, kinds.VirtualService, "a", "v",
			`{"hosts":["x"],"http":[{"match":[{"sourceLabels":{"team":"`+secret+`"}}]}]}`)}, false},
		{"source labels of neither", []*kinds.Object{object(t, kinds.VirtualService, "a", "v",
			`{"hosts":["x"],"http":[{"match":[{"sourceLabels":{"team":"z"}}]}]}`)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := index([]*registry.Workload{pod("web-0", "10.1.0.1", map[string]string{"team": secret}),
				pod("web-1", "10.1.0.2", map[string]string{"hash": "y"})}, c.objects...)
			one, two := resolve(x, sidecar("web-0", "10.1.0.1")), resolve(x, sidecar("web-1", "10.1.0.2"))
			if (shared(one) == shared(two)) != c.same {
				t.Errorf("one cohort: %v, want %v", !c.same, c.same)
			}
			if one.Address != "10.1.0.1" || two.Address != "10.1.0.2" {
				t.Errorf("addresses %s and %s", one.Address, two.Address)
			}
			for _, k := range []cohort.Inputs{one, two} {
				// Objects are interned by pointer, so %v shows their addresses. All other text is part of the key
				// itself.
				if s := fmt.Sprintf("%v", k); strings.Contains(s, secret) {
					t.Errorf("the key holds a label's value: %s", s)
				}
			}
		})
	}
}

// TestAddressSplitsOnlyWhereIngressNamesIt checks that the address splits an inbound cohort only where an ingress
// listener depends on it.
func TestAddressSplitsOnlyWhereIngressNamesIt(t *testing.T) {
	pods := []*registry.Workload{pod("web-0", "10.1.0.1", nil), pod("web-1", "10.1.0.2", nil)}
	for spec, same := range map[string]bool{
		`{"egress":[{"hosts":["./*"]}]}`:                         true,
		`{"inboundConnectionPool":{"tcp":{"maxConnections":3}}}`: true,
		`{"ingress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"bind":"0.0.0.0","defaultEndpoint":"127.0.0.1:8"}]}`: true,
		`{"ingress":[{"port":{"number":80,"protocol":"HTTP","name":"h"},"bind":"0.0.0.0","defaultEndpoint":"0.0.0.0:8"}]}`:   false,
		`{"ingress":[{"port":{"number":80,"protocol":"HTTP","name":"h"}}]}`:                                                  false,
	} {
		x := index(pods, object(t, kinds.Sidecar, "a", "default", spec))
		one, two := resolve(x, sidecar("web-0", "10.1.0.1")), resolve(x, sidecar("web-1", "10.1.0.2"))
		if (one.Inbound == two.Inbound) != same || one.Client != two.Client || one.Outbound != two.Outbound {
			t.Errorf("%s: one inbound cohort: %v", spec, !same)
		}
	}
}

// TestTargetPorts checks that named ports are resolved by the workload's containers, and left out if they have none.
func TestTargetPorts(t *testing.T) {
	p := resolve(index([]*registry.Workload{pod("web-0", "10.1.0.1", nil)}), sidecar("web-0", "10.1.0.1"))
	var got []string
	for x := range p.Inbound.Targets.All {
		got = append(got, fmt.Sprintf("%s:%d>%d", x.Service.Name, x.Port, x.TargetPort))
	}
	if want := []string{"web:80>8080", "web:443>8443", "web:53>53", "web:90>90"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWorkloadOfProxy checks the order of precedence: the Pod with the proxy's name, the WorkloadEntry, the owner of
// its address in its namespace, the proxy's own metadata.
func TestWorkloadOfProxy(t *testing.T) {
	entry := &registry.Workload{WorkloadKey: registry.WorkloadKey{Kind: kinds.WorkloadEntry, Namespace: "a", Name: "vm"},
		Addresses: []string{"10.2.0.1"}, Labels: map[string]string{"app": "vm"}}
	elsewhere := &registry.Workload{WorkloadKey: registry.WorkloadKey{Kind: kinds.Pod, Namespace: "b", Name: "x"},
		Addresses: []string{"10.3.0.1"}, Labels: map[string]string{"app": "elsewhere"}}
	x := index([]*registry.Workload{pod("web-0", "10.1.0.1", nil), entry, elsewhere})
	for _, c := range []struct{ name, ip, want string }{
		{"web-0", "10.1.0.1", "web"}, {"web-0", "10.2.0.1", "web"}, {"vm", "10.9.9.9", "vm"}, {"unknown", "10.2.0.1", "vm"},
		{"unknown", "10.9.9.9", "claimed"}, {"unknown", "10.3.0.1", "claimed"},
	} {
		p := sidecar(c.name, c.ip)
		p.Labels = map[string]string{"app": "claimed"}
		if got := resolve(x, p).Outbound.Tags.CanonicalService; got != c.want {
			t.Errorf("%s at %s is %s, want %s", c.name, c.ip, got, c.want)
		}
	}
	web := pod("web-1", "10.1.0.2", nil)
	web.ServiceAccount, entry.ServiceAccount = "web", "machine"
	x = index([]*registry.Workload{web, entry})
	for _, c := range []struct{ name, ip, want string }{
		{"web-1", "10.9.9.9", "web"}, {"unknown", "10.1.0.2", "web"}, {"vm", "10.2.0.1", ""}, {"unknown", "10.9.9.9", ""},
	} {
		if got := cohort.Account(x.Snapshot, sidecar(c.name, c.ip)); got != c.want {
			t.Errorf("%s at %s is of account %q, want %q", c.name, c.ip, got, c.want)
		}
	}
}

// TestRunsAs checks that a proxy runs as an account if its cluster has a Pod or a WorkloadEntry with its name that
// does. The owner of its address does not matter.
func TestRunsAs(t *testing.T) {
	web := pod("web-1", "10.1.0.2", nil)
	far := pod("web-2", "10.1.0.3", nil)
	far.WorkloadKey.Cluster, far.Cluster = "far", "far"
	entry := &registry.Workload{WorkloadKey: registry.WorkloadKey{Kind: kinds.WorkloadEntry, Namespace: "a", Name: "vm"},
		Addresses: []string{"10.2.0.1"}}
	web.ServiceAccount, far.ServiceAccount, entry.ServiceAccount = "web", "web", "web"
	x := index([]*registry.Workload{web, far, entry})
	for _, c := range []struct {
		name, ip, cluster, account string
		want                       bool
	}{
		{"web-1", "10.9.9.9", "", "web", true}, {"vm", "10.9.9.9", "", "web", true}, {"web-2", "10.9.9.9", "far", "web", true},
		{"web-1", "10.1.0.2", "", "db", false}, {"unknown", "10.1.0.2", "", "web", false}, {"web-1", "10.1.0.2", "", "", false},
		{"web-2", "10.1.0.3", "", "web", false}, {"web-1", "10.1.0.2", "far", "web", false}, {"vm", "10.2.0.1", "far", "web", false},
	} {
		p := sidecar(c.name, c.ip)
		p.Cluster = c.cluster
		if got := cohort.RunsAs(x.Snapshot, p, c.account); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestWhatSplitsCohorts checks which inputs split scopes, and which split only listeners.
func TestWhatSplitsCohorts(t *testing.T) {
	x := index([]*registry.Workload{pod("web-0", "10.1.0.1", nil)})
	base := resolve(x, sidecar("web-0", "10.1.0.1"))
	for name, c := range map[string]struct {
		alter                    func(*node.Proxy)
		scope, outbound, inbound bool
	}{
		"interception":  {func(p *node.Proxy) { p.Interception = node.TPROXY }, false, true, true},
		"HTTP/1.0":      {func(p *node.Proxy) { p.HTTP10 = true }, false, true, true},
		"idle timeout":  {func(p *node.Proxy) { p.IdleTimeout = 4 }, false, true, true},
		"client files":  {func(p *node.Proxy) { p.ClientFiles.Chain = "/c" }, true, false, false},
		"server files":  {func(p *node.Proxy) { p.ServerFiles.Chain = "/c" }, false, true, true},
		"tracing":       {func(p *node.Proxy) { p.Tracing = "x" }, false, true, true},
		"mesh":          {func(p *node.Proxy) { p.MeshID = "other" }, false, true, true},
		"proxy port":    {func(p *node.Proxy) { p.HTTPProxyPort = 15002 }, false, true, false},
		"network":       {func(p *node.Proxy) { p.Network = "n" }, true, false, false},
		"capabilities":  {func(p *node.Proxy) { p.Capabilities = node.HTTPStats }, true, false, true},
		"IPv6":          {func(p *node.Proxy) { p.IPs = []string{"::1:1"} }, true, false, true},
		"version":       {func(p *node.Proxy) { p.Version, p.Revision, p.Envoy = "1", "r", [3]uint32{1, 2, 3} }, false, false, false},
		"annotations":   {func(p *node.Proxy) { p.Annotations = map[string]string{"x": "y"} }, false, false, false},
		"claimed label": {func(p *node.Proxy) { p.Labels = map[string]string{"app": "x"} }, false, false, false},
	} {
		p := sidecar("web-0", "10.1.0.1")
		c.alter(p)
		k := resolve(x, p)
		if (k.Client != base.Client) != c.scope || (k.Outbound != base.Outbound) != c.outbound || (k.Inbound != base.Inbound) != c.inbound {
			t.Errorf("%s: scope %v, outbound %v, inbound %v", name, k.Client != base.Client, k.Outbound != base.Outbound, k.Inbound != base.Inbound)
		}
	}
}

func TestRouterSelectsItsGateways(t *testing.T) {
	mine := object(t, kinds.Gateway, "b", "mine", `{"selector":{"app":"web"}}`)
	other := object(t, kinds.Gateway, "b", "other", `{"selector":{"app":"api"}}`)
	p := sidecar("web-0", "10.1.0.1")
	p.Type = node.Router
	k := resolve(index([]*registry.Workload{pod("web-0", "10.1.0.1", nil)}, mine, other, object(t, kinds.Sidecar, "a", "default", `{}`)), p)
	if got := slices.Collect(k.Client.Gateways.All); !slices.Equal(got, []*kinds.Object{mine}) {
		t.Errorf("gateways %v", got)
	}
	if k.Inbound != (cohort.Inbound{}) || k.Client.Sidecar != nil || k.Client.Targets.Empty() {
		t.Errorf("a router has %+v", k)
	}
}

// TestScopedGateways checks that a router selects only Gateways of its own namespace if Gateways are limited to it. A
// derived Gateway names the namespaces of its workloads itself.
func TestScopedGateways(t *testing.T) {
	own := object(t, kinds.Gateway, "a", "own", `{"selector":{"app":"web"}}`)
	other := object(t, kinds.Gateway, "b", "other", `{"selector":{"app":"web"}}`)
	open, derived := object(t, kinds.Gateway, "b", "open", `{}`), object(t, kinds.Gateway, "b", "derived", `{"selector":{"app":"x"}}`)
	derived.Extra = &kinds.GatewayExtra{Workloads: []kinds.WorkloadSelector{{Namespace: "a", Labels: map[string]string{"app": "web"}}}}
	w, p := pod("web-0", "10.1.0.1", nil), sidecar("web-0", "10.1.0.1")
	p.Type = node.Router
	for scoped, want := range map[bool][]*kinds.Object{true: {derived, own}, false: {derived, open, other, own}} {
		b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "c", Mesh: mesh.Default(), Catalog: catalog.Features(),
			Settings: snapshot.Settings{ScopedGateways: scoped}})
		b.ApplyRegistry(registry.Changes{Workloads: map[registry.WorkloadKey]*registry.Workload{w.WorkloadKey: w}})
		for _, o := range []*kinds.Object{own, other, open, derived} {
			b.Apply([]kinds.Change{{Key: o.Key, Object: o}})
		}
		k := resolve(scope.NewIndex(b.Commit(time.Time{}), nil), p)
		if got := slices.Collect(k.Client.Gateways.All); !slices.Equal(got, want) {
			t.Errorf("scoped %v: %v, want %v", scoped, got, want)
		}
	}
}

// TestNodesSplitNoScope checks that the node of a proxy splits no scope, even with a node-local service.
func TestNodesSplitNoScope(t *testing.T) {
	local := *web
	local.NodeLocal = true
	one, two := pod("web-0", "10.1.0.1", nil), pod("web-1", "10.1.0.2", nil)
	one.NodeName, two.NodeName, two.Locality = "n1", "n2", registry.Locality{Region: "r2"}
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "c", Mesh: mesh.Default(), Catalog: catalog.Features()})
	b.ApplyRegistry(registry.Changes{
		Services:  map[registry.ServiceKey]*registry.Service{local.Key(): &local},
		Workloads: map[registry.WorkloadKey]*registry.Workload{one.WorkloadKey: one, two.WorkloadKey: two},
	})
	x := scope.NewIndex(b.Commit(time.Time{}), nil)
	p, q := resolve(x, sidecar("web-0", "10.1.0.1")), resolve(x, sidecar("web-1", "10.1.0.2"))
	if p.Client != q.Client || p.Outbound != q.Outbound || p.Inbound != q.Inbound {
		t.Error("two cohorts")
	}
	if p.Node != "n1" || q.Node != "n2" {
		t.Errorf("nodes %s and %s", p.Node, q.Node)
	}
}

// TestRulesOfTheServedService checks that a workload that serves the Service of another namespace has the
// DestinationRules in force there.
func TestRulesOfTheServedService(t *testing.T) {
	served := &registry.Service{Host: "web.b.svc.cluster.local", Namespace: "b", Name: "web",
		Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}}}
	w := pod("web-0", "10.1.0.1", nil)
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "c", Mesh: mesh.Default(), Catalog: catalog.Features()})
	b.ApplyRegistry(registry.Changes{
		Services:  map[registry.ServiceKey]*registry.Service{served.Key(): served},
		Workloads: map[registry.WorkloadKey]*registry.Workload{w.WorkloadKey: w},
		Endpoints: map[registry.ServiceKey][]*registry.Endpoint{served.Key(): {{Address: "10.1.0.1", Port: 8080, ServicePort: "http",
			Cluster: "c"}}},
	})
	for _, ns := range []string{"a", "b"} {
		o := object(t, kinds.DestinationRule, ns, "rule", `{"host": "web.b.svc.cluster.local"}`)
		b.Apply([]kinds.Change{{Key: o.Key, Object: o}})
	}
	var rules []string
	for target := range resolve(scope.NewIndex(b.Commit(time.Time{}), nil), sidecar("web-0", "10.1.0.1")).Inbound.Targets.All {
		for r := range target.Rules.All {
			rules = append(rules, r.Namespace)
		}
	}
	if !slices.Equal(rules, []string{"b"}) {
		t.Errorf("DestinationRules of namespaces %v, want b", rules)
	}
}

// TestKeepInbound checks that a proxy whose workload is missing for a moment keeps its inbound half, its patches and
// the cluster of its own workload.
func TestKeepInbound(t *testing.T) {
	table := cohort.NewInterner()
	last := table.Intern(cohort.Inputs{Inbound: cohort.Inbound{Sidecar: true, Namespace: "a"}, Patches: cohort.Patches{Router: true},
		Self: cohort.Self{Host: "web.a.svc.cluster.local"}})
	now := table.Intern(cohort.Inputs{UnknownWorkload: true})
	if kept, ok := now.KeepInbound(last); !ok || kept.Inbound != last.Inbound || kept.Patches != last.Patches || kept.Client != now.Client ||
		kept.Self.None() || kept.Self != last.Self {
		t.Errorf("%v, %v", kept, ok)
	}
	if kept, ok := last.KeepInbound(now); ok || kept != last {
		t.Errorf("%v, %v", kept, ok)
	}
}
