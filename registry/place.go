package registry

import "github.com/istiod-lite/istiod-lite/api/names"

// Place is the location of an endpoint or a proxy. Unknown parts are empty.
type Place struct {
	Locality Locality
	Network  string
	Cluster  string // ID of the cluster, also for the server's own
	Node     string // name of the node
}

// Labels are the labels by which selectors and subsets select a workload: its own, and the labels that its place adds.
// names.IsPlaceLabel reports which labels a place adds.
type Labels struct {
	Own   map[string]string
	Place Place
}

// Lookup returns a label, and whether the workload has it. A known place overrides the workload's own labels, except
// for the network, which the workload's own label overrides.
func (l Labels) Lookup(name string) (value string, ok bool) {
	switch name {
	case names.LabelRegion:
		value = l.Place.Locality.Region
	case names.LabelZone:
		value = l.Place.Locality.Zone
	case names.LabelSubzone:
		value = l.Place.Locality.SubZone
	case names.LabelNetwork:
		if l.Own[name] == "" {
			value = l.Place.Network
		}
	case names.LabelCluster:
		value = l.Place.Cluster
	case names.LabelHost:
		value = l.Place.Node
	}
	if value != "" {
		return value, true
	}
	value, ok = l.Own[name]
	return value, ok
}

// Get returns a label, or "" if the workload does not have it.
func (l Labels) Get(name string) string {
	value, _ := l.Lookup(name)
	return value
}

// Match reports whether a selector matches. An empty selector matches everything.
func (l Labels) Match(selector map[string]string) bool {
	for name, want := range selector {
		if got, ok := l.Lookup(name); !ok || got != want {
			return false
		}
	}
	return true
}

// AllLabels returns the labels by which subsets and policies select an endpoint.
func (e *Endpoint) AllLabels() Labels {
	return Labels{e.Labels, Place{e.Locality, e.Network, e.Cluster, e.NodeName}}
}
