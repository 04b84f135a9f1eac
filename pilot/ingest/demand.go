package ingest

import (
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// SecretDemand decides which Secrets and ConfigMaps of the cluster are read for what they hold for TLS: those that a
// proxy may have and has subscribed to, and that a Gateway or a DestinationRule names. Safe for concurrent use.
type SecretDemand struct {
	world   *World
	sources *Sources

	mu         sync.Mutex
	demand     []kinds.Key // of proxies
	references *References // of objects, when wanted was last found; nil: it has to be found
	wanted     []kinds.Key // of the cluster
}

// NewSecretDemand returns a SecretDemand that wants nothing yet.
func NewSecretDemand(w *World, s *Sources) *SecretDemand { return &SecretDemand{world: w, sources: s} }

// Set replaces what proxies want. It does not wait.
func (d *SecretDemand) Set(keys []kinds.Key) {
	d.mu.Lock()
	d.demand, d.references = keys, nil
	d.mu.Unlock()
	d.Update()
}

// Update has the sources read what is wanted. It is to be called after each commit.
func (d *SecretDemand) Update() {
	d.mu.Lock()
	defer d.mu.Unlock()
	references := d.world.References()
	if references == d.references {
		return
	}
	d.references = references
	wanted := slices.DeleteFunc(slices.Clone(d.demand), func(k kinds.Key) bool { return !references.Has(k.Name) })
	if !slices.Equal(wanted, d.wanted) {
		d.wanted = wanted
		d.sources.wantSecrets(wanted)
	}
}

// Findings returns which objects name a Secret or a ConfigMap that the cluster does not have, in a namespace where a
// proxy wants it.
func (d *SecretDemand) Findings() (list []diag.Diagnostic) {
	missing := d.sources.missingSecrets()
	namespaces := map[string]bool{}
	for k := range missing {
		namespaces[k.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		list = append(list, d.world.missingIn(namespace, missing)...)
	}
	return list
}
