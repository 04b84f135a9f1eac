package cohort_test

import (
	"fmt"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestCohortsOutsideReassignStay checks, over random histories of most kinds that select workloads, that the cohort of
// a proxy is unchanged unless Reassign includes the proxy's namespace.
func TestCohortsOutsideReassignStay(t *testing.T) {
	meshes := []*mesh.Config{mesh.Default(), mesh.Default(), mesh.Default()}
	meshes[1].RootNamespace, meshes[2].DefaultDestinationRuleExportTo = "b", []string{"b"}
	var proxies []*node.Proxy
	for i, ns := range []string{"a", "b", "a", "a"} {
		p := sidecar(fmt.Sprint("p", i), fmt.Sprint("10.0.0.", i))
		p.Namespace, p.ID = ns, p.Name+"."+ns
		proxies = append(proxies, p)
	}
	proxies[3].Type = node.Router
	proxies[0].SelfDiscovery, proxies[3].SelfDiscovery = true, true
	checked, interner := 0, cohort.NewInterner()
	rapid.Check(t, func(t *rapid.T) {
		b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "c", Mesh: meshes[0], Catalog: catalog.Features(),
			Settings: snapshot.Settings{ScopedGateways: rapid.Bool().Draw(t, "scoped")}})
		change := func(p *node.Proxy, there bool) {
			k := registry.WorkloadKey{Kind: kinds.Pod, Namespace: p.Namespace, Name: p.Name}
			var w *registry.Workload
			if there {
				w = &registry.Workload{WorkloadKey: k, Addresses: p.IPs, Labels: drawLabels(t),
					NodeName: rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")}
			}
			b.ApplyRegistry(registry.Changes{Workloads: map[registry.WorkloadKey]*registry.Workload{k: w}})
		}
		for _, p := range proxies {
			change(p, true)
		}
		var last *scope.Index
		for range rapid.IntRange(2, 12).Draw(t, "steps") {
			for range rapid.IntRange(1, 2).Draw(t, "changes") {
				switch rapid.IntRange(0, 9).Draw(t, "what") {
				case 0:
					b.SetMesh(rapid.SampledFrom(meshes).Draw(t, "mesh"))
				case 1:
					change(rapid.SampledFrom(proxies).Draw(t, "pod"), rapid.IntRange(0, 4).Draw(t, "there") > 0)
				case 2, 3, 4:
					b.ApplyRegistry(drawService(t))
				default:
					b.Apply([]kinds.Change{drawObject(t)})
				}
			}
			s := b.Commit(time.Time{})
			if last != nil && s == last.Snapshot {
				continue
			}
			x := scope.NewIndex(s, last)
			for _, p := range proxies {
				if last == nil {
					continue
				}
				was, is := resolve(last, p), resolve(x, p)
				if was.UnknownWorkload || x.Dirty.Reassign.Includes(p.Namespace) {
					continue
				}
				checked++
				if was != is || interner.Intern(was) != interner.Intern(is) {
					t.Fatalf("%s of %s has another cohort: %+v, want %+v", p.Name, p.Namespace, was, is)
				}
				if interner.Intern(is).Inputs() != is {
					t.Fatalf("%+v differs as a key: %+v", is, interner.Intern(is).Inputs())
				}
			}
			last = x
		}
	})
	if checked == 0 {
		t.Error("Reassign included every namespace each time")
	}
}

func drawLabels(t *rapid.T) map[string]string {
	return map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app")}
}

// drawSelector returns nil one time in three. Depending on the kind, nil selects everything or nothing.
func drawSelector(t *rapid.T) map[string]string {
	if rapid.IntRange(0, 2).Draw(t, "selects") == 0 {
		return nil
	}
	return drawLabels(t)
}

func drawNamespace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "istio-system"}).Draw(t, "namespace")
}

var serviceHosts = []string{"one.a.svc.cluster.local", "two.a.svc.cluster.local", "three.b.svc.cluster.local"}

func drawService(t *rapid.T) registry.Changes {
	i := rapid.IntRange(0, 2).Draw(t, "service")
	k := registry.ServiceKey{Namespace: []string{"a", "a", "b"}[i], Host: serviceHosts[i]}
	c := registry.Changes{Services: map[registry.ServiceKey]*registry.Service{}, Endpoints: map[registry.ServiceKey][]*registry.Endpoint{}}
	if rapid.Bool().Draw(t, "itself") {
		c.Services[k] = nil
		if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
			c.Services[k] = &registry.Service{
				Host: k.Host, Namespace: k.Namespace, Name: k.Host, Selector: drawSelector(t), NodeLocal: rapid.IntRange(0, 4).Draw(t, "local") == 0,
				TrafficDist: rapid.SampledFrom([]string{"", "", "", "PreferClose"}).Draw(t, "spread"),
				Ports:       []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}},
			}
		}
		return c
	}
	for a := range 3 {
		if rapid.Bool().Draw(t, "endpoint") {
			c.Endpoints[k] = append(c.Endpoints[k], &registry.Endpoint{Address: fmt.Sprint("10.0.0.", a), Port: 8080, ServicePort: "http",
				HealthKnown: true})
		}
	}
	if c.Endpoints[k] == nil {
		c.Endpoints[k] = []*registry.Endpoint{}
	}
	return c
}

func drawObject(t *rapid.T) kinds.Change {
	kind := rapid.SampledFrom([]*kinds.Kind{
		kinds.VirtualService, kinds.VirtualService, kinds.DestinationRule, kinds.DestinationRule, kinds.Sidecar, kinds.Gateway,
		kinds.PeerAuthentication, kinds.AuthorizationPolicy,
		kinds.RequestAuthentication,
	}).Draw(t, "kind")
	k := kinds.Key{Kind: kind, Namespace: drawNamespace(t), Name: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "name")}
	if rapid.IntRange(0, 3).Draw(t, "there") == 0 {
		return kinds.Change{Key: k}
	}
	o := &kinds.Object{Key: k}
	labels := drawSelector(t)
	switch kind {
	case kinds.VirtualService:
		v := &networkingv1.VirtualService{Hosts: []string{"one.a.svc.cluster.local"}, Http: []*networkingv1alpha3.HTTPRoute{{
			Name: rapid.SampledFrom([]string{"r", "s"}).Draw(t, "route"), Match: []*networkingv1alpha3.HTTPMatchRequest{{SourceLabels: labels}},
		}}}
		switch rapid.IntRange(0, 2).Draw(t, "delegates") {
		case 0:
			v.Hosts = nil // a delegate
		case 1:
			v.Http[0].Delegate = &networkingv1alpha3.Delegate{Name: "two", Namespace: drawNamespace(t)}
		}
		o.Spec = v
	case kinds.DestinationRule:
		d := &networkingv1.DestinationRule{Host: rapid.SampledFrom(serviceHosts).Draw(t, "host")}
		if labels != nil {
			d.WorkloadSelector = &typev1beta1.WorkloadSelector{MatchLabels: labels}
		}
		o.Spec = d
	case kinds.Sidecar:
		o.Spec = &networkingv1.Sidecar{WorkloadSelector: &networkingv1alpha3.WorkloadSelector{Labels: labels}}
	case kinds.Gateway:
		o.Spec = &networkingv1.Gateway{Selector: labels}
	case kinds.PeerAuthentication:
		o.Spec = &securityv1.PeerAuthentication{Selector: &typev1beta1.WorkloadSelector{MatchLabels: labels}}
	case kinds.AuthorizationPolicy:
		o.Spec = &securityv1.AuthorizationPolicy{Selector: &typev1beta1.WorkloadSelector{MatchLabels: labels}}
	default:
		o.Spec = &securityv1.RequestAuthentication{Selector: &typev1beta1.WorkloadSelector{MatchLabels: labels}}
	}
	return kinds.Change{Key: k, Object: o}
}
