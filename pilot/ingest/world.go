package ingest

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/aggregate"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/mcs"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// Parts are the collaborators of a World.
type Parts struct {
	Event func(kind *kinds.Kind, event string) // called for every change; may be nil
	Hosts facts.Provider                       // resolves host names of gateways; nil if none are resolved

	Facts   map[*kinds.Kind]facts.Provider // providers of the facts that translations read, by kind
	Stages  []derive.Stage                 // stages that derive objects from objects, in order
	Catalog Catalog
	// Roots returns the roots that proxies trust besides the issuer of their own certificates, as PEM texts, for a mesh
	// configuration. The World calls it again after a change of kinds.Roots. Nil if proxies are sent no such roots.
	Roots func(*mesh.Config) []string
	Still bool // true if no object changes after the first load
}

// Catalog describes how translations use objects: see package catalog.
type Catalog interface {
	// Kinds returns the kinds that translations read: see snapshot.Options.
	Kinds() map[*kinds.Kind]snapshot.Reach
	// Wants returns the facts that translations of the object need.
	Wants(*kinds.Object) []facts.Want
	// Unsupported and UnsupportedMesh return a finding for each field without effect.
	Unsupported(*kinds.Object) []diag.Diagnostic
	UnsupportedMesh(*mesh.Config) []diag.Diagnostic
}

// World turns changes into snapshots. The changes pass the filter and the registries, and the Builder makes the
// snapshot. Only one goroutine at a time may call Commit. The other methods are safe for concurrent use.
type World struct {
	logger      *slog.Logger
	o           Options
	parts       Parts
	services    *aggregate.Registry
	builder     *snapshot.Builder
	mesh        *mesh.Config
	networks    *mesh.Networks
	usedMesh    map[string]string // last text in use, by file or ConfigMap
	filter      *filter
	stages      *stages // changes its output while it holds mu
	credentials *credentialStore
	rootsMesh   *mesh.Config // mesh configuration of the last Parts.Roots call
	reselect    bool         // the selectors have changed: the next commit filters every object again

	hosts           *facts.Table[[]string] // addresses of the gateways with host names
	networkGateways map[kinds.Key]*kinds.Object
	wanted          map[*kinds.Kind][]facts.Need // facts that translations need, sorted by name

	mu   sync.Mutex // guards the fields that other goroutines read
	last *snapshot.Snapshot
	merged
	unsupported  map[kinds.Key][]diag.Diagnostic // fields without effect, by object
	findings     map[string][]diag.Diagnostic    // by group, such as "mesh" or "gateways"
	gatewayHosts []hostName                      // host names of gateways
	referenced   *References
	stageSecrets []kinds.Key // looked up by stages, sorted
	served       []servedUntil
	lacking      []lackingPart
	counts       Counts
	nodeAccounts *accountsByNode // nil unless Options.CountNodeAccounts is set
	accounts     accounts
	selections   uint64 // number of commits that selected or unselected namespaces
}

// Counts are the numbers of the registries and of the credentials, as of the last commit.
type Counts struct {
	Pending, WithoutIP, NotReady int
	BadCredentials               int // object versions with an unusable part, since the start
}

// New returns a World without objects.
func New(o Options, p Parts) *World {
	w := &World{
		logger: o.Logger.With("scope", "model"), o: o, parts: p, mesh: defaultMesh(o), usedMesh: map[string]string{},
		filter: newFilter(o.Revision, o.Namespace), merged: newMerged(), findings: map[string][]diag.Diagnostic{},
		unsupported: map[kinds.Key][]diag.Diagnostic{}, hosts: facts.NewTable[[]string](kinds.HostAddresses, p.Hosts),
		networkGateways: map[kinds.Key]*kinds.Object{}, wanted: map[*kinds.Kind][]facts.Need{},
		accounts: accounts{}, credentials: newCredentialStore(time.Now), referenced: &References{},
	}
	w.stages = newStages(w)
	w.builder = snapshot.NewBuilder(snapshot.Options{
		Domain: o.Domain, Cluster: o.ClusterID, OneStore: o.Client == nil, Settings: o.Settings, Mesh: w.mesh, Limits: o.Limits,
		Catalog: p.Catalog,
	})
	if o.CountNodeAccounts {
		w.nodeAccounts = newAccountsByNode()
	}
	w.makeRegistries()
	return w
}

func (w *World) makeRegistries() {
	m, networks, o := w.mesh, w.networks, w.o
	w.services = aggregate.New(aggregate.Options{
		Kube: func(cluster string) *kube.Registry {
			id := cmp.Or(cluster, o.ClusterID)
			return kube.New(kube.Options{
				Domain: o.Domain, Cluster: id, Remote: cluster != "",
				Controllers: (o.Client != nil || o.Cluster != nil || cluster != "") && !o.NoServices,
				TrustDomain: m.GetTrustDomain(), SystemNamespace: o.Namespace, Networks: networks.Of(id),
				Gateways: gatewayServices(networks, id),
			})
		},
		Entries: serviceentry.New(serviceentry.Options{
			Cluster: o.ClusterID, TrustDomain: m.GetTrustDomain(), Visibility: m.EntryVisibility(), Ranges: o.AutoAddresses,
		}),
		Sets: mcs.New(o.MultiCluster, cmp.Or(o.Domain, "cluster.local")),
	})
}

// Commit applies a batch and returns the new snapshot. received is the arrival time of the first change.
func (w *World) Commit(batch []kinds.Change, received time.Time) *snapshot.Snapshot {
	answers, batch := facts.Split(w.hosts.Apply(batch), w.isFact)
	roots, batch := facts.Split(batch, func(k *kinds.Kind) bool { return k == kinds.Roots })
	remesh := false
	for _, c := range batch {
		w.count(c)
		remesh = remesh || w.o.isMesh(c.Key)
	}
	w.mu.Lock()
	first := w.last == nil
	if first {
		w.load(len(batch))
	}
	for _, c := range batch {
		var before *kinds.Object
		if !first {
			before = w.objects[c.Key].object
		}
		w.commit(c)
		if w.nodeAccounts != nil {
			w.nodeAccounts.apply(c)
		}
		w.accounts.replace(before, c.Object)
		delete(w.unsupported, c.Key)
		if c.Object == nil {
			continue
		}
		list := w.parts.Catalog.Unsupported(c.Object)
		for i := range list {
			list[i] = list[i].At(c.Object.Position)
		}
		if len(list) > 0 {
			w.unsupported[c.Key] = list
		}
	}
	w.mu.Unlock()
	rebuild := remesh && w.applyMesh()
	batch = w.visible(batch)
	var unsupported []diag.Diagnostic
	for _, c := range batch {
		if c.Object != nil {
			unsupported = append(unsupported, w.unsupported[c.Key]...)
		}
	}
	for _, d := range w.Located(unsupported) {
		w.logger.Warn("finding", "finding", d.String())
	}

	batch = w.derive(batch)

	w.builder.SetMesh(w.mesh)
	if w.parts.Roots != nil && (len(roots) > 0 || w.rootsMesh != w.mesh) {
		w.rootsMesh = w.mesh
		w.builder.SetRoots(w.parts.Roots(w.mesh))
	}
	w.builder.Apply(batch)
	if held, looked := w.credentials.apply(batch); looked {
		w.builder.Apply(held)
		w.setFindings("credentials", w.credentials.findings())
		w.mu.Lock()
		w.referenced, w.served = w.credentials.frozen(w.referenced), w.credentials.served()
		w.lacking = w.credentials.lacking()
		w.mu.Unlock()
	}
	if rebuild {
		w.builder.ApplyRegistry(w.rebuildRegistries(batch))
	} else {
		w.builder.ApplyRegistry(w.services.Apply(batch))
	}
	w.applyFacts(answers)
	w.checkGateways(batch, rebuild)
	w.builder.SetNetworks(w.gateways(), w.networks.Ranges())
	s := w.builder.Commit(received)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = s
	w.counts = Counts{w.services.Pending(), w.services.PodsWithoutIP(), w.services.NotReady(), w.credentials.errors}
	return s
}

// visible returns the changes that pass the filter. A hidden object is a deletion. If a namespace becomes selected or
// unselected, all its objects are added to the changes.
func (w *World) visible(batch []kinds.Change) []kinds.Change {
	w.mu.Lock()
	turned := w.filter.apply(batch)
	if w.reselect || len(turned) > 0 {
		w.selections++
	}
	w.mu.Unlock()
	if w.reselect || len(turned) > 0 {
		taken := lists.SetOf(batch, func(c kinds.Change) kinds.Key { return c.Key })
		for key, c := range w.objects {
			if (w.reselect || turned[clusterNamespaceOf(key)]) && !taken[key] {
				batch = append(batch, kinds.Change{Key: key, Object: c.object})
			}
		}
		w.reselect = false
		config.Sort(batch)
	}
	out := make([]kinds.Change, 0, len(batch))
	for _, c := range batch {
		if c.Object != nil && !w.filter.accepts(c.Object) {
			c.Object = nil
		}
		out = append(out, c)
	}
	return out
}

// derive adds the changes of derived objects.
func (w *World) derive(batch []kinds.Change) []kinds.Change {
	if len(w.stages.list) == 0 {
		return batch
	}
	batch, ran := w.stages.apply(batch, w.mesh)
	if !ran {
		return batch
	}
	if list, changed := w.stages.sharedSecrets(); changed {
		w.builder.SetShared(list)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stageSecrets = w.stages.credentials()
	return batch
}

// fromSource returns the accepted object of a source, or nil. Only the committing goroutine may call it.
func (w *World) fromSource(k kinds.Key) *kinds.Object {
	if o := w.objects[k].object; o != nil && w.filter.accepts(o) {
		return o
	}
	return nil
}

// allFromSources returns the accepted objects of a kind from sources, in no order. Only the committing goroutine may
// call it.
func (w *World) allFromSources(kind *kinds.Kind) (list []*kinds.Object) {
	for k, c := range w.objects {
		if k.Kind == kind && w.filter.accepts(c.object) {
			list = append(list, c.object)
		}
	}
	return list
}

// Derived returns the derived objects in force with their origins, in the order of keys.
func (w *World) Derived() []derive.Derived {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]derive.Derived, 0, len(w.stages.derived))
	for _, d := range w.stages.derived {
		list = append(list, d.Derived)
	}
	slices.SortFunc(list, func(a, b derive.Derived) int { return compareKeys(a.Object.Key, b.Object.Key) })
	return list
}

// originOf returns the object that a derived object was made of, or nil if the key is not of a derived object.
func (w *World) originOf(k kinds.Key) *kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, is := w.stages.derived[k]
	if !is {
		return nil
	}
	return w.objects[d.Origin].object
}

// Origin returns the object that a derived object with that key was made of, or else the object with that key, or nil.
func (w *World) Origin(k kinds.Key) *kinds.Object {
	if o := w.originOf(k); o != nil {
		return o
	}
	return w.Object(k)
}

// StageSecrets returns the Secrets and ConfigMaps that stages looked up, sorted. The caller must not modify the result.
func (w *World) StageSecrets() []kinds.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stageSecrets
}

// Statuses returns the wanted statuses, sorted by object.
func (w *World) Statuses() []*derive.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sortedStatuses(w.stages.statuses)
}

// Status returns the wanted status of an object, or nil if it has none.
func (w *World) Status(of kinds.Key) *derive.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stages.statuses[of]
}

// TakeStatuses returns the wanted statuses that have changed since the last call, by object. A nil value means that the
// object has no status any more. The first call returns every status. Only one caller may use it.
func (w *World) TakeStatuses() map[kinds.Key]*derive.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stages.takeStatuses()
}

// rebuildRegistries makes the registries again after the trust domain, the networks or serviceEntryVisibility have
// changed. It returns their whole content, and the deletions in batch.
func (w *World) rebuildRegistries(batch []kinds.Change) registry.Changes {
	gone := w.services.Apply(batch)
	w.makeRegistries()
	all := make([]kinds.Change, 0, len(w.objects))
	for key, c := range w.objects {
		if w.filter.accepts(c.object) {
			all = append(all, kinds.Change{Key: key, Object: c.object})
		}
	}
	for key, d := range w.stages.derived {
		all = append(all, kinds.Change{Key: key, Object: d.Object})
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

func (w *World) count(c kinds.Change) {
	if w.parts.Event == nil {
		return
	}
	old := w.objects[c.Key].object // only this goroutine writes objects
	switch {
	case c.Object == nil:
		w.parts.Event(c.Kind, "delete")
	case old == nil:
		w.parts.Event(c.Kind, "add")
	case config.Equal(old, c.Object):
		w.parts.Event(c.Kind, "updatesame")
	default:
		w.parts.Event(c.Kind, "update")
	}
}

// Snapshot returns the last snapshot, or nil before the first.
func (w *World) Snapshot() *snapshot.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Object returns the accepted object or the derived object with that key, or nil.
func (w *World) Object(k kinds.Key) *kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[k].object; o != nil && w.filter.accepts(o) {
		return o
	}
	if d := w.stages.derived[k]; d != nil {
		return d.Object
	}
	return nil
}

// Stored describes an object of the sources: the version of the last commit, or nil, whether the filter accepts it, and
// whether a newer change of it is not committed yet.
func (w *World) Stored(k kinds.Key) (o *kinds.Object, accepted, pending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o = w.objects[k].object
	next, changed := w.pending[k]
	return o, o != nil && w.filter.accepts(o), changed && next.object != o
}

// Selections returns the number of commits that selected or unselected namespaces, so that objects took effect that the
// batch did not have.
func (w *World) Selections() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.selections
}

// Accepts reports whether the revision and the discoverySelectors accept an Istio object with those labels in a
// namespace of the server's own cluster. It does not check that the object exists.
func (w *World) Accepts(namespace string, labels map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.filter.forRevision(labels) && w.filter.selected(clusterNamespace{"", namespace})
}

// AllObjects returns a copy of all objects of the sources, accepted or not.
func (w *World) AllObjects() map[kinds.Key]*kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[kinds.Key]*kinds.Object, len(w.objects))
	for key, c := range w.objects {
		all[key] = c.object
	}
	return all
}

// Objects returns every accepted or derived object, in no order.
func (w *World) Objects() []*kinds.Object {
	return w.accepted(func(kinds.Key) bool { return true })
}

// ObjectsOf returns every accepted or derived object of a kind, in no order.
func (w *World) ObjectsOf(kind *kinds.Kind) []*kinds.Object {
	return w.accepted(func(k kinds.Key) bool { return k.Kind == kind })
}

// Namespaces returns the selected namespaces of a cluster, sorted. The server's own cluster is "".
func (w *World) Namespaces(cluster string) []string {
	var names []string
	w.mu.Lock()
	for at := range w.filter.namespaces {
		if at.cluster == cluster && w.filter.selected(at) && w.o.watches(at.namespace) {
			names = append(names, at.namespace)
		}
	}
	w.mu.Unlock()
	slices.Sort(names)
	return names
}

// TakesPart reports whether Namespaces has a namespace.
func (w *World) TakesPart(cluster, namespace string) bool {
	at := clusterNamespace{cluster, namespace}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, known := w.filter.namespaces[at]
	return known && w.filter.selected(at) && w.o.watches(namespace)
}

func (w *World) accepted(wanted func(kinds.Key) bool) []*kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*kinds.Object
	for k, c := range w.objects {
		if wanted(k) && w.filter.accepts(c.object) {
			list = append(list, c.object)
		}
	}
	for k, d := range w.stages.derived {
		if wanted(k) {
			list = append(list, d.Object)
		}
	}
	return list
}

// Findings returns the findings about the mesh configuration, the gateways between networks, credentials, derived
// objects and fields without effect.
func (w *World) Findings() []diag.Diagnostic {
	w.mu.Lock()
	var objects []diag.Diagnostic
	for key, list := range w.unsupported {
		if w.filter.accepts(w.objects[key].object) {
			objects = append(objects, list...)
		}
	}
	objects = append(objects, w.stages.findings()...)
	found := slices.Concat(
		w.findings["mesh"], w.findings["meshNetworks"], w.findings["unsupported"], w.findings["gateways"], w.findings["credentials"],
		expiredCertificates(w.served, time.Now()),
	)
	w.mu.Unlock()
	objects = w.Located(objects)
	slices.SortFunc(objects, compareFindings)
	return slices.Concat(found, w.unresolved(), w.failingFacts(), w.unservedCredentials(), w.lackingCredentials(), objects)
}

// Counts returns the numbers as of the last commit.
func (w *World) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}
