package ingest

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// SecretDemand decides which Secrets and ConfigMaps of each cluster the sources read for TLS: the ones that a proxy has
// subscribed to and may have, if a Gateway or a DestinationRule names them, and the ones that stages look up. It is
// safe for concurrent use.
type SecretDemand struct {
	world   *World
	sources *Sources

	mu         sync.Mutex
	demand     []kinds.Key // wanted by proxies
	references *References // references at the last update; nil if demand has changed since
	stages     []kinds.Key // looked up by stages, at the last update
	wanted     []kinds.Key // by all clusters
}

// NewSecretDemand returns a SecretDemand that wants no objects.
func NewSecretDemand(w *World, s *Sources) *SecretDemand { return &SecretDemand{world: w, sources: s} }

// Set replaces the objects that proxies want. The keys hold cluster IDs. Set does not wait for the objects.
func (d *SecretDemand) Set(keys []kinds.Key) {
	keys = slices.Clone(keys)
	for i := range keys {
		if keys[i].Cluster == d.world.o.ClusterID {
			keys[i].Cluster = ""
		}
	}
	slices.SortFunc(keys, compareKeys)
	keys = slices.Compact(keys)
	d.mu.Lock()
	d.demand, d.references = keys, nil
	d.mu.Unlock()
	d.update()
}

// Committed updates the wanted objects after a commit, which may have changed the names in objects.
func (d *SecretDemand) Committed([]kinds.Change) { d.update() }

// update passes the wanted objects to the sources if they have changed.
func (d *SecretDemand) update() {
	d.mu.Lock()
	defer d.mu.Unlock()
	references, stages := d.world.References(), d.world.StageSecrets()
	if references == d.references && slices.Equal(stages, d.stages) {
		return
	}
	d.references, d.stages = references, stages
	wanted := slices.DeleteFunc(slices.Clone(d.demand), func(k kinds.Key) bool { return !references.Has(k.Name) })
	wanted = append(wanted, stages...)
	slices.SortFunc(wanted, compareKeys)
	wanted = slices.Compact(wanted)
	if !slices.Equal(wanted, d.wanted) {
		d.wanted = wanted
		d.sources.wantSecrets(wanted)
	}
}

// Findings returns a finding for each object that names a Secret or a ConfigMap that a cluster does not have, if a
// proxy of that cluster wants it.
func (d *SecretDemand) Findings() (list []diag.Diagnostic) {
	missing := d.sources.missingSecrets()
	namespaces := map[clusterNamespace]bool{}
	for k := range missing {
		namespaces[clusterNamespaceOf(k)] = true
	}
	for _, at := range slices.SortedFunc(maps.Keys(namespaces), func(a, b clusterNamespace) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.namespace, b.namespace))
	}) {
		list = append(list, d.world.missingIn(at.cluster, at.namespace, missing)...)
	}
	return list
}
