package ingest

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// SecretDemand decides which Secrets and ConfigMaps of clusters are read for what they hold for TLS: those that a proxy
// may have and has subscribed to, and that a Gateway or a DestinationRule names; and those that stages look up. It is
// safe for concurrent use.
type SecretDemand struct {
	world   *World
	sources *Sources

	mu         sync.Mutex
	demand     []kinds.Key // of proxies
	references *References // of objects, when wanted was last found; nil: it has to be found
	stages     []kinds.Key // that stages looked up then
	wanted     []kinds.Key // of all clusters
}

// NewSecretDemand returns a SecretDemand that wants nothing yet.
func NewSecretDemand(w *World, s *Sources) *SecretDemand { return &SecretDemand{world: w, sources: s} }

// Set replaces what proxies want, by the IDs of their clusters. It does not wait.
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

// Committed takes a commit: objects may name other Secrets than before.
func (d *SecretDemand) Committed([]kinds.Change) { d.update() }

// update has the sources read what is wanted.
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

// Findings returns which objects name a Secret or a ConfigMap that a cluster does not have, in a namespace where a
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
