package bootstrap

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/aggregate"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// world turns changes into snapshots: through the registries and the mesh configuration into the Builder. commit is called by one goroutine at a time; the
// other methods may be called from anywhere.
type world struct {
	logger   *slog.Logger
	o        Options
	events   func(kind *kinds.Kind, event string) // told of every change; may be nil
	kube     *kube.Registry
	services *aggregate.Registry
	builder  *snapshot.Builder
	mesh     *mesh.Config
	networks *mesh.Networks

	mu       sync.Mutex // guards what others read
	last     *snapshot.Snapshot
	objects  map[kinds.Key]*kinds.Object
	findings map[string][]diag.Diagnostic // by key of the ConfigMap
	counts   counts
}

// counts are the registries' own, as of the last commit.
type counts struct{ pending, withoutIP, notReady int }

func newWorld(o Options, events func(*kinds.Kind, string)) *world {
	w := &world{
		logger: o.Logger.With("scope", "model"), o: o, events: events, mesh: defaultMesh(o),
		objects: map[kinds.Key]*kinds.Object{}, findings: map[string][]diag.Diagnostic{},
	}
	w.builder = snapshot.NewBuilder(snapshot.Options{Domain: o.Domain, Mesh: w.mesh})
	w.makeRegistries()
	return w
}

// defaultMesh is the mesh configuration where nobody gave one: the root namespace is the server's.
func defaultMesh(o Options) *mesh.Config {
	c := mesh.Default()
	c.RootNamespace = o.Namespace
	return c
}

func (w *world) makeRegistries() {
	network := networkOf(w.networks, w.o.ClusterID)
	w.kube = kube.New(kube.Options{
		Domain: w.o.Domain, Cluster: w.o.ClusterID, TrustDomain: w.mesh.GetTrustDomain(), SystemNamespace: w.o.Namespace, Network: network,
	})
	w.services = aggregate.New(w.kube, serviceentry.New(serviceentry.Options{
		Cluster: w.o.ClusterID, TrustDomain: w.mesh.GetTrustDomain(), SystemNamespace: w.o.Namespace, Network: network,
	}))
}

// meshKey is the ConfigMap that holds the mesh configuration and the networks.
func (w *world) meshKey() kinds.Key {
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: w.o.Namespace, Name: "istio"}
}

// commit applies a batch and gives the snapshot that it makes. received is when the first change of it came in.
func (w *world) commit(batch []kinds.Change, received time.Time) *snapshot.Snapshot {
	rebuild := false
	for _, c := range batch {
		w.count(c)
		if c.Key == w.meshKey() {
			rebuild = w.applyMesh(c.Object) || rebuild
		}
	}
	w.mu.Lock()
	for _, c := range batch {
		if c.Object == nil {
			delete(w.objects, c.Key)
		} else {
			if d, ok := unread(c.Object); ok {
				w.logger.Warn("finding", "finding", d.String())
			}
			w.objects[c.Key] = c.Object
		}
	}
	w.mu.Unlock()

	w.builder.SetMesh(w.mesh)
	w.builder.Apply(batch)
	if rebuild {
		w.builder.ApplyRegistry(w.registerAnew(batch))
	} else {
		w.builder.ApplyRegistry(w.services.Apply(batch))
	}
	s := w.builder.Commit(received)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = s
	w.counts = counts{w.kube.Pending(), w.kube.PodsWithoutIP(), w.kube.NotReady()}
	return s
}

// registerAnew makes the registries again, for the trust domain or the networks have changed, and gives all that they hold now, and what is gone with batch.
func (w *world) registerAnew(batch []kinds.Change) registry.Changes {
	gone := w.services.Apply(batch)
	w.makeRegistries()
	all := make([]kinds.Change, 0, len(w.objects))
	for key, o := range w.objects {
		all = append(all, kinds.Change{Key: key, Object: o})
	}
	config.Sort(all)
	now := w.services.Apply(all)
	for k, s := range gone.Services {
		if s == nil {
			now.Services[k] = nil
		}
	}
	for k, list := range gone.Endpoints {
		if len(list) == 0 {
			now.Endpoints[k] = nil
		}
	}
	for k, l := range gone.Workloads {
		if l == nil {
			now.Workloads[k] = nil
		}
	}
	return now
}

// applyMesh reads the mesh configuration and tells whether the registries depend on what is different. What is wrong keeps the last good one.
func (w *world) applyMesh(o *kinds.Object) (rebuild bool) {
	data := map[string]string{}
	name := ""
	if o != nil {
		data, name = o.Spec.(*corev1.ConfigMap).Data, o.Position
		if name == "" {
			name = o.String()
		}
	}
	c, found := defaultMesh(w.o), []diag.Diagnostic(nil)
	if text, ok := data["mesh"]; ok {
		c, found = mesh.ParseOver(c, name, []byte(text))
	}
	w.found("mesh", found)
	if c != nil && !c.Equal(w.mesh) {
		rebuild = c.GetTrustDomain() != w.mesh.GetTrustDomain()
		w.mesh = c
		w.logger.Info("mesh configuration in force", "from", cmp.Or(name, "defaults"))
	}

	n, found := (*mesh.Networks)(nil), []diag.Diagnostic(nil)
	if text, ok := data["meshNetworks"]; ok {
		n, found = mesh.ParseNetworks(name, []byte(text))
		if n == nil {
			n = w.networks // the last good ones
		}
	}
	w.found("meshNetworks", found)
	if same := n == w.networks || n != nil && w.networks != nil && n.Equal(w.networks); !same {
		w.networks, rebuild = n, true
		w.logger.Info("mesh networks in force", "from", cmp.Or(name, "none"))
	}
	return rebuild
}

func (w *world) found(key string, list []diag.Diagnostic) {
	for _, d := range list {
		w.logger.Warn("finding", "finding", d.String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings[key] = list
}

func (w *world) count(c kinds.Change) {
	if w.events == nil {
		return
	}
	old := w.objects[c.Key] // read by the goroutine that alone writes
	switch {
	case c.Object == nil:
		w.events(c.Kind, "delete")
	case old == nil:
		w.events(c.Kind, "add")
	case config.Equal(old, c.Object):
		w.events(c.Kind, "updatesame")
	default:
		w.events(c.Kind, "update")
	}
}

// Snapshot gives the last one, or nil before the first.
func (w *world) Snapshot() *snapshot.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Objects gives every object in force, in no order.
func (w *world) Objects() []*kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*kinds.Object, 0, len(w.objects))
	for _, o := range w.objects {
		list = append(list, o)
	}
	return list
}

// Findings gives what is wrong with the mesh configuration, and which objects have no effect yet.
func (w *world) Findings() []diag.Diagnostic {
	w.mu.Lock()
	defer w.mu.Unlock()
	var objects []diag.Diagnostic
	for _, o := range w.objects {
		if d, ok := unread(o); ok {
			objects = append(objects, d)
		}
	}
	slices.SortFunc(objects, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Object, b.Object))
	})
	return slices.Concat(w.findings["mesh"], w.findings["meshNetworks"], objects)
}

// unread says where an object stands that translation does not read, or not whole.
func unread(o *kinds.Object) (diag.Diagnostic, bool) {
	d, ok := translate.Unread(o)
	if part := strings.Split(o.Position, ":"); ok && len(part) > 2 {
		at := len(part) - 2
		d.File = strings.Join(part[:at], ":")
		d.Line, _ = strconv.Atoi(part[at])
		d.Column, _ = strconv.Atoi(part[at+1])
	}
	return d, ok
}

func (w *world) registryCounts() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// networkOf gives the function that finds an address in the mesh's list of networks: by the longest range that holds it, else by the cluster; nil where
// there is no list.
func networkOf(n *mesh.Networks, cluster string) func(address string) string {
	if n == nil {
		return nil
	}
	type entry struct {
		prefix  netip.Prefix
		network string
	}
	var ranges []entry
	ofCluster := ""
	for name, network := range n.GetNetworks() {
		for _, e := range network.GetEndpoints() {
			if p, err := netip.ParsePrefix(e.GetFromCidr()); err == nil {
				ranges = append(ranges, entry{p.Masked(), name})
			}
			if e.GetFromRegistry() == cluster && (ofCluster == "" || name < ofCluster) {
				ofCluster = name
			}
		}
	}
	slices.SortFunc(ranges, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), cmp.Compare(a.network, b.network))
	})
	return func(address string) string {
		if ip, err := netip.ParseAddr(address); err == nil {
			for _, e := range ranges {
				if e.prefix.Contains(ip.Unmap()) {
					return e.network
				}
			}
		}
		return ofCluster
	}
}
