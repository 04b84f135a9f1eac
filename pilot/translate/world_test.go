package translate_test

import (
	"cmp"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry/aggregate"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/mcs"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// TestMain has the collector run less often: the tests make many worlds and keep little, and it took a third of their
// time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// newTranslator returns a Translator with all features.
func newTranslator(idle int) *translate.Translator {
	return translate.New(translate.Options{Idle: idle, Features: catalog.Features()})
}

// tb is what helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// world makes Snapshots from YAML, without files and time. Keys that are to be fetched are there at once: each set is
// the name of its source, or keys.
type world struct {
	t        tb
	registry *aggregate.Registry
	builder  *snapshot.Builder
	keys     string
}

func newWorld(t tb, m *mesh.Config) *world { return newWorldOf(t, snapshot.Options{Mesh: m}) }

// newWorldOf returns a world with some options of its Builder.
func newWorldOf(t tb, o snapshot.Options) *world {
	o.Domain, o.Catalog = "cluster.local", catalog.Features()
	return &world{t: t, registry: newRegistry(kube.Options{}, o.Mesh.EntryVisibility(), clusterset.Options{}), builder: snapshot.NewBuilder(o)}
}

// newRegistry returns the registries of a mesh. The options of a cluster's registry need no ID.
func newRegistry(o kube.Options, entries *mesh.EntryVisibility, sets clusterset.Options) *aggregate.Registry {
	return aggregate.New(aggregate.Options{
		Kube: func(id string) *kube.Registry {
			of := o
			of.Cluster, of.Remote = cmp.Or(id, "Kubernetes"), id != ""
			return kube.New(of)
		},
		Entries: serviceentry.New(serviceentry.Options{Cluster: "Kubernetes", Visibility: entries}), Sets: mcs.New(sets, "cluster.local"),
	})
}

func objects(t tb, name string, yaml []byte) []kinds.Change {
	t.Helper()
	var changes []kinds.Change
	decoded := validation.Decode(limits.Default(), name, yaml)
	if decoded.Broken != nil {
		t.Fatal(decoded.Broken)
	}
	for _, d := range decoded.Documents {
		if d.Object == nil {
			t.Fatal(d.Findings)
		}
		changes = append(changes, kinds.Change{Key: d.Key, Object: d.Object})
	}
	return changes
}

func (w *world) apply(changes ...kinds.Change) *snapshot.Snapshot {
	answers, changes := facts.Split(changes, func(k *kinds.Kind) bool { return k == tapFact })
	w.builder.ApplyRegistry(w.registry.Apply(changes))
	w.builder.Apply(changes)
	w.builder.ApplyFacts(answers)
	for _, need := range w.builder.Wanted(kinds.JWKS) {
		set := cmp.Or(w.keys, need.Name)
		w.builder.ApplyFacts([]kinds.Change{facts.Change(kinds.JWKS, need.Name, &set)})
	}
	w.builder.SetNetworks(w.registry.Gateways(), nil)
	return w.builder.Commit(time.Time{})
}

func read(t tb, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	must.Succeed(t, err)
	return b
}

func proxy(t tb, data []byte) *node.Proxy {
	t.Helper()
	n := &corev3.Node{}
	must.Succeed(t, protojson.Unmarshal(data, n))
	p, err := node.Parse(n)
	must.Succeed(t, err)
	return p
}

// configByType is everything that a proxy is sent, by type and name, as an Envoy would ask for it by following
// references.
type configByType map[string]map[string]*envoy.Resource

func sent(t tb, tr *translate.Translator, s *snapshot.Snapshot, p *node.Proxy) configByType {
	t.Helper()
	c := tr.ResolveCohort(s, p)
	out := configByType{"cds": {}, "eds": {}, "lds": {}, "rds": {}}
	for r := range tr.Wildcard(s, c, envoy.ClusterType).All {
		out["cds"][r.Name] = r
		if m := decode(t, r).(*clusterv3.Cluster); m.GetType() == clusterv3.Cluster_EDS {
			name := cmp.Or(m.GetEdsClusterConfig().GetServiceName(), m.Name)
			out["eds"][name] = tr.Resource(s, c, envoy.EndpointType, name)
		}
	}
	for r := range tr.Wildcard(s, c, envoy.ListenerType).All {
		out["lds"][r.Name] = r
		for _, name := range routeNames(t, decode(t, r)) {
			out["rds"][name] = tr.Resource(s, c, envoy.RouteType, name)
		}
	}
	if p.SelfDiscovery { // as the bootstrap of its Envoy asks
		out["eds"][names.SelfCluster] = tr.Resource(s, c, envoy.EndpointType, names.SelfCluster)
	}
	return out
}

// routeNames returns the route configurations that a listener's connection managers ask for by RDS.
// routeNames returns the names of the route configurations that a listener has its connection managers subscribe to.
func routeNames(t tb, m proto.Message) []string {
	t.Helper()
	var list []string
	for f := range networkFilters(m.(*listenerv3.Listener)) {
		if h := connectionManager(t, f); h.GetRds() != nil {
			list = append(list, h.GetRds().RouteConfigName)
		}
	}
	return list
}

// extensionNames returns the names of the filters of a listener whose configurations proxies subscribe to.
func extensionNames(t tb, m proto.Message) []string {
	t.Helper()
	var list []string
	for f := range networkFilters(m.(*listenerv3.Listener)) {
		if f.GetConfigDiscovery() != nil {
			list = append(list, f.Name)
		}
		for _, h := range connectionManager(t, f).GetHttpFilters() {
			if h.GetConfigDiscovery() != nil {
				list = append(list, h.Name)
			}
		}
	}
	return list
}

// networkFilters returns the network filters of all chains of a listener.
func networkFilters(l *listenerv3.Listener) iter.Seq[*listenerv3.Filter] {
	return func(yield func(*listenerv3.Filter) bool) {
		for _, c := range append(slices.Clip(l.FilterChains), l.DefaultFilterChain) {
			for _, f := range c.GetFilters() {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// connectionManager returns the connection manager that a filter is, nil if it is none.
func connectionManager(t tb, f *listenerv3.Filter) *hcmv3.HttpConnectionManager {
	t.Helper()
	h := &hcmv3.HttpConnectionManager{}
	if !f.GetTypedConfig().MessageIs(h) {
		return nil
	}
	must.Succeed(t, f.GetTypedConfig().UnmarshalTo(h))
	return h
}

func decode(t tb, r *envoy.Resource) proto.Message {
	t.Helper()
	return featuretest.Message(t, r)
}

func asJSON(t tb, r *envoy.Resource) any {
	t.Helper()
	return featuretest.Value(t, featuretest.Any(t, r))
}
