package translate_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

const everything = node.HTTPPeerMetadata | node.NetworkMetadataExchange | node.ALPNFilter | node.HTTPStats | node.NetworkStats

// testProxies returns proxies of every kind. The workload of each is in the pool.
func testProxies() map[string]*node.Proxy {
	sidecar := func(ns, name, ip string) *node.Proxy {
		return &node.Proxy{
			Type: node.Sidecar, ID: name + "." + ns, Name: name, Namespace: ns, Domain: ns + ".svc.cluster.local", IPs: []string{ip},
			Cluster:      "Kubernetes",
			Interception: node.Redirect, MeshID: "cluster.local", Capabilities: everything,
		}
	}
	api := sidecar("b", "api-0", "10.1.0.4")
	stock := sidecar("a", "pets-0", "10.1.0.5")
	stock.Capabilities = node.VHDS
	unpodded := sidecar("a", "bare-0", "10.1.0.7")
	unpodded.Interception, unpodded.HTTP10 = node.TPROXY, true
	none := sidecar("b", "none-0", "10.1.0.8")
	none.Interception, none.Labels = node.None, map[string]string{"tier": "front"}
	vm := sidecar("a", "vm-by-address", "10.2.0.1")
	vm.DNSCapture, vm.DNSAutoAllocate, vm.Network = true, true, "n1"
	gw := sidecar("istio-system", "gw-0", "10.1.0.9")
	gw.Type = node.Router
	gw.Capabilities |= node.VHDS
	remote := sidecar("a", "web-0", "10.1.0.1")
	remote.Cluster, remote.Network = "remote", "n2"
	gw.Network, gw.NetworkView = "n1", []string{"n1", "n3"}
	remote.SelfDiscovery, api.SelfDiscovery, gw.SelfDiscovery = true, true, true
	return map[string]*node.Proxy{
		"web": sidecar("a", "web-0", "10.1.0.1"), "remote": remote, "api": api, "stock": stock,
		"unpodded": unpodded, "none": none, "vm": vm, "gateway": gw,
	}
}

// references caches the names that resources refer to by content, so that each content is decoded once.
type references struct {
	mu    sync.Mutex
	seen  map[string][]string
	names envoy.NameInterner
	held  []*envoy.Names
}

// referencesOf returns the names in a resource of a type: those of assignments in clusters, and of route configurations
// in listeners. For ExtensionType it returns those of configurations of filters in a listener, after its others.
func (m *references) referencesOf(t tb, typeURL string, r *envoy.Resource) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := typeURL + r.Version
	if list, ok := m.seen[key]; ok {
		return list
	}
	var list []string
	switch typeURL {
	case envoy.ClusterType:
		if c := decode(t, r).(*clusterv3.Cluster); c.GetType() == clusterv3.Cluster_EDS {
			list = []string{cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.Name)}
		}
	case envoy.ListenerType:
		l := decode(t, r)
		list = routeNames(t, l)
		m.seen[envoy.ExtensionType+r.Version] = extensionNames(t, l)
	}
	m.seen[key] = list
	return list
}

// config is all that one proxy is sent, by "type name".
type config map[string]*envoy.Resource

var (
	clusters, listeners   = "cds ", "lds "
	assignments, routings = "eds ", "rds "
	extensions            = "ecds "
)

// config returns everything that a proxy is sent. What it subscribes to by name is asked for all at once, as streams
// do.
func (m *references) config(t tb, tr *translate.Translator, s *snapshot.Snapshot, p *node.Proxy) config {
	c, out := tr.ResolveCohort(s, p), config{}
	names := m.wildcards(t, tr, s, p, out)
	for typeURL, short := range subscribed {
		u, err := tr.Get(s, c, typeURL, m.intern(names[typeURL]))
		must.Succeed(t, err)
		found := 0
		for r := range u.All {
			out[short+r.Name] = r
			found++
		}
		if list := names[typeURL]; typeURL == envoy.ExtensionType && found != len(slices.Compact(slices.Sorted(slices.Values(list)))) {
			t.Fatalf("%s is sent %d of the configurations %v", p.ID, found, list)
		}
		if typeURL == envoy.RouteType {
			checkDivided(t, u.Shared)
		}
	}
	return out
}

// configByName is config, but asks for one name after the other.
func (m *references) configByName(t tb, tr *translate.Translator, s *snapshot.Snapshot, p *node.Proxy) config {
	c, out := tr.ResolveCohort(s, p), config{}
	for typeURL, names := range m.wildcards(t, tr, s, p, out) {
		for _, name := range names {
			out[subscribed[typeURL]+name] = tr.Resource(s, c, typeURL, name)
		}
	}
	return out
}

var subscribed = map[string]string{envoy.EndpointType: assignments, envoy.RouteType: routings, envoy.ExtensionType: extensions}

// wildcards puts clusters, listeners and the name table into out, and returns the names that they refer to, by type.
func (m *references) wildcards(t tb, tr *translate.Translator, s *snapshot.Snapshot, p *node.Proxy, out config) map[string][]string {
	c, referred := tr.ResolveCohort(s, p), map[string][]string{}
	if p.SelfDiscovery {
		referred[envoy.EndpointType] = []string{names.SelfCluster}
	}
	for r := range tr.Wildcard(s, c, envoy.ClusterType).All {
		out[clusters+r.Name] = r
		referred[envoy.EndpointType] = append(referred[envoy.EndpointType], m.referencesOf(t, envoy.ClusterType, r)...)
	}
	for r := range tr.Wildcard(s, c, envoy.ListenerType).All {
		out[listeners+r.Name] = r
		referred[envoy.RouteType] = append(referred[envoy.RouteType], m.referencesOf(t, envoy.ListenerType, r)...)
		referred[envoy.ExtensionType] = append(referred[envoy.ExtensionType], m.referencesOf(t, envoy.ExtensionType, r)...)
	}
	for r := range tr.Wildcard(s, c, envoy.NameTableType).All {
		out["nds "+r.Name] = r
	}
	return referred
}

// cohortsOfProxies is the cohorts of proxies as streams hold them: resolved again only where the Translator wants it.
type cohortsOfProxies map[string]struct {
	cohort   cohort.Key
	revision uint64
}

// differ returns an error text if the proxy should have been reassigned and was not.
func (j cohortsOfProxies) differ(tr *translate.Translator, s *snapshot.Snapshot, who string, p *node.Proxy) string {
	has, known := j[who]
	now := tr.ResolveCohort(s, p)
	if known && !tr.NeedsReassign(s, p, has.cohort, has.revision) && has.cohort != now {
		return fmt.Sprintf("%s is not reassigned, from revision %d to %d: %+v should be %+v", who, has.revision, s.Revision,
			has.cohort.Inputs(), now.Inputs())
	}
	has.cohort, has.revision = now, s.Revision
	j[who] = has
	return ""
}

// intern interns names and holds the list, as a stream does that subscribes to it.
func (m *references) intern(names []string) *envoy.Names {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names.Intern(slices.Clone(names))
	m.held = append(m.held, n)
	return n
}

// checkDivided checks route configurations as clients get them that take virtual hosts by VHDS: put together, the
// virtual hosts must be the same.
func checkDivided(t tb, routes *envoy.Set) {
	heads, hosts := routes.Divided()
	n := 0
	for r := range routes.All {
		switch head := heads.Get(r.Name); {
		case r.Head == nil && head != r:
			t.Fatalf("route configuration %s is not divided, and comes otherwise", r.Name)
		case r.Head == nil:
		case !head.Divided || r.Hosts.Len() == 0:
			t.Fatalf("route configuration %s is divided, and comes whole or without virtual hosts", r.Name)
		default:
			below := slices.Collect(hosts.Below(r.Name))
			if n += len(below); len(below) != r.Hosts.Len() {
				t.Fatalf("route configuration %s has %d virtual hosts, by themselves there are %d", r.Name, r.Hosts.Len(), len(below))
			}
			for h := range r.Hosts.All {
				if hosts.Get(h.Name) != h {
					t.Fatalf("virtual host %s is missing or another by itself", h.Name)
				}
			}
		}
	}
	if n != hosts.Len() {
		t.Fatalf("%d virtual hosts by themselves, %d belong to a route configuration", hosts.Len(), n)
	}
}

// differences lists the resources in which two configs differ.
func differences(a, b config) []string {
	var list []string
	for k, r := range a {
		if o := b[k]; o == nil {
			list = append(list, k+" (only before)")
		} else if !bytes.Equal(r.Bytes(), o.Bytes()) {
			list = append(list, k)
		}
	}
	for k := range b {
		if a[k] == nil {
			list = append(list, k+" (only after)")
		}
	}
	slices.Sort(list)
	return list
}

// affectedByDelta reports whether a stream has to look at its proxy again after a Snapshot.
func affectedByDelta(tr *translate.Translator, s *snapshot.Snapshot, p *node.Proxy) bool {
	d := &s.Diff
	return tr.Compare(s) || slices.ContainsFunc(d.Workloads, func(k registry.WorkloadKey) bool {
		return p.ID == k.Name+"."+k.Namespace || k.Kind != kinds.Pod && k.Namespace == p.Namespace
	}) || slices.ContainsFunc(d.Addresses, func(a snapshot.ClusterAddress) bool {
		return a.Cluster == s.ClusterKey(p.Cluster) && slices.Contains(p.IPs, a.Address)
	})
}

// pool holds the versions of each object from which histories are drawn.
type pool struct {
	keys     []kinds.Key
	moving   []kinds.Key // of objects that come and go all day
	routing  []kinds.Key // of VirtualServices, which may be made of several
	rules    []kinds.Key // of DestinationRules
	versions map[kinds.Key][]*kinds.Object
	meshes   []*mesh.Config
}

// newWorld returns a world for a history. In half of them ServiceExports and ServiceImports have an effect.
func (p *pool) newWorld(t tb, m *mesh.Config, sets bool) *world {
	w := newWorld(t, m)
	if sets {
		w.registry = newRegistry(kube.Options{}, nil, clusterset.Options{Discovery: true, Hosts: true})
	}
	return w
}

func readPool(t tb) *pool {
	p := &pool{versions: map[kinds.Key][]*kinds.Object{}}
	all := objects(t, "pool.yaml", read(t, "testdata", "pool.yaml"))
	// Another cluster holds the same names, in versions of its own.
	for _, c := range inCluster("remote", all) {
		switch c.Kind {
		case kinds.Service, kinds.EndpointSlice, kinds.Pod, kinds.Node, kinds.Namespace, kinds.WorkloadEntry, kinds.ServiceExport,
			kinds.ServiceImport:
			all = append(all, c)
		}
	}
	for _, c := range all {
		if p.versions[c.Key] == nil {
			p.keys = append(p.keys, c.Key)
			if moving(c.Key) {
				p.moving = append(p.moving, c.Key)
			}
			switch c.Kind {
			case kinds.VirtualService:
				p.routing = append(p.routing, c.Key)
			case kinds.DestinationRule:
				p.rules = append(p.rules, c.Key)
			}
		}
		p.versions[c.Key] = append(p.versions[c.Key], c.Object)
	}
	only := mesh.Default()
	only.OutboundTrafficPolicy.Mode = meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
	plain := mesh.Default()
	plain.EnableAutoMtls = wrapperspb.Bool(false)
	local, _ := mesh.ParseOver(mesh.Default(), "mesh",
		[]byte(`serviceSettings: [{settings: {clusterLocal: true}, hosts: ["*.a.svc.cluster.local"]}]`))
	p.meshes = []*mesh.Config{mesh.Default(), only, plain, local}
	return p
}

// change is a kinds.Change that a failure prints readably, by the version of the object; -1 is a deletion.
type change struct {
	kinds.Change
	version int
}

func (c change) GoString() string { return fmt.Sprintf("%v v%d", c.Key, c.version) }

// draw draws a change of one of some objects. A third of the changes are deletions.
func (p *pool) draw(keys []kinds.Key) *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		c := change{kinds.Change{Key: rapid.SampledFrom(keys).Draw(t, "key")}, -1}
		if v := rapid.IntRange(-1, 2*len(p.versions[c.Key])-1).Draw(t, "version"); v >= 0 {
			c.Object, c.version = p.versions[c.Key][v/2], v/2
		}
		return c
	})
}

// start draws a world with most of the objects.
func (p *pool) start(t *rapid.T) []change {
	var all []change
	for _, k := range p.keys {
		n := len(p.versions[k])
		if v := rapid.IntRange(0, 4*n).Draw(t, "start"); v > 0 {
			v = (v - 1) % n
			all = append(all, change{kinds.Change{Key: k, Object: p.versions[k][v]}, v})
		}
	}
	return all
}

// moving reports whether objects of a kind come and go all day.
func moving(k kinds.Key) bool {
	return k.Kind == kinds.Pod || k.Kind == kinds.EndpointSlice || k.Kind == kinds.WorkloadEntry
}

// TestHistories applies random changes commit by commit. After each one, a long-lived Translator must return, with and
// without its memo, byte for byte what a fresh one returns for a fresh world that got all objects in one batch. The
// Diff must be enough for a stream to know what to send.
func TestHistories(t *testing.T) {
	histories.FewerWithRace(t)
	p, refs, proxies := readPool(t), &references{seen: map[string][]string{}}, testProxies()
	rapid.Check(t, func(t *rapid.T) {
		m := p.meshes[0]
		sets := rapid.Bool().Draw(t, "sets")
		w, present := p.newWorld(t, m, sets), map[kinds.Key]*kinds.Object{}
		on, off := newTranslator(100<<10), newTranslator(0)
		before := map[string]config{}
		lastSets := map[string][4]*envoy.Set{}
		cohorts := map[string]cohort.Key{} // what proxies share with others
		members := cohortsOfProxies{}

		some := rapid.Permutation(slices.Sorted(maps.Keys(proxies))).Draw(t, "proxies")[:3]
		step := rapid.OneOf(rapid.SliceOfN(p.draw(p.moving), 1, 3), rapid.SliceOfN(p.draw(p.routing), 1, 3),
			rapid.SliceOfN(p.draw(p.rules), 1, 2), rapid.SliceOfN(p.draw(p.keys), 1, 4))
		steps := append([][]change{p.start(t)}, rapid.SliceOfN(step, 1, 8).Draw(t, "steps")...)
		for i, batch := range steps {
			var changes []kinds.Change
			for _, c := range batch {
				changes = append(changes, c.Change)
				if present[c.Key] = c.Object; c.Object == nil {
					delete(present, c.Key)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "mesh") == 0 {
				m = rapid.SampledFrom(p.meshes).Draw(t, "which")
				w.builder.SetMesh(m)
			}
			s := w.apply(changes...)

			var all []kinds.Change
			for _, k := range slices.SortedFunc(maps.Keys(present), func(a, b kinds.Key) int { return strings.Compare(a.String(), b.String()) }) {
				all = append(all, kinds.Change{Key: k, Object: present[k]})
			}
			seed := rapid.Uint64().Draw(t, "shuffle")
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			fresh := newTranslator(0)
			once := p.newWorld(t, m, sets).apply(all...)

			for which, name := range some {
				proxy := proxies[name]
				want := refs.configByName(t, fresh, once, proxy)
				got := refs.config(t, on, s, proxy)
				if d := differences(want, got); d != nil {
					t.Fatalf("step %d, %s: with memo, one batch (before) and the history (after) differ in\n%s", i, name, strings.Join(d, "\n"))
				}
				if which == 0 {
					if d := differences(want, refs.config(t, off, s, proxy)); d != nil {
						t.Fatalf("step %d, %s: without memo, one batch (before) and the history (after) differ in\n%s", i, name, strings.Join(d, "\n"))
					}
				}
				if rapid.IntRange(0, 3).Draw(t, "busy") > 0 {
					if d := members.differ(on, s, name, proxy); d != "" {
						t.Fatalf("step %d: %s", i, d)
					}
				}
				c := on.ResolveCohort(s, proxy)
				cds, lds := on.Wildcard(s, c, envoy.ClusterType), on.Wildcard(s, c, envoy.ListenerType)
				now := [4]*envoy.Set{cds.Shared, cds.Own, lds.Shared, lds.Own}
				if i > 0 && !affectedByDelta(on, s, proxy) {
					shown := map[string]bool{}
					for _, k := range s.Diff.Endpoints {
						for _, a := range on.Assignments(s, c, k) {
							shown[assignments+a] = true
						}
					}
					for _, d := range differences(before[name], got) {
						if !shown[d] {
							t.Fatalf("step %d, %s: %s differs, of which the delta does not speak: %+v", i, name, d, s.Diff)
						}
					}
					if len(s.Diff.Workloads) == 0 && len(s.Diff.Addresses) == 0 && now != lastSets[name] {
						t.Fatalf("step %d, %s: only endpoints changed, yet Sets are other pointers", i, name)
					}
				}
				if i > 0 && on.ReassignsOnly(s) && c.Shared() == cohorts[name] {
					if now[0] != lastSets[name][0] || now[2] != lastSets[name][2] {
						t.Fatalf("step %d, %s: no resource should be dirty, yet Sets of the cohort are other pointers", i, name)
					}
					for _, d := range differences(before[name], got) {
						if strings.HasPrefix(d, assignments) || strings.HasPrefix(d, routings) {
							t.Fatalf("step %d, %s: no resource should be dirty, yet %s differs", i, name, d)
						}
					}
				}
				before[name], lastSets[name], cohorts[name] = got, now, c.Shared()
			}
		}
		if hits, misses := off.Stats(); hits != 0 || misses == 0 {
			t.Fatalf("without memo there were %d hits, %d misses", hits, misses)
		}
	})
}
