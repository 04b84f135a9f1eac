package derive

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Stage derives objects from objects, such as VirtualServices from Ingresses. Registries and snapshots treat a derived
// object like any other, so nothing after the stages knows of it.
type Stage struct {
	Name  string
	Kinds []*kinds.Kind // what Derive gets whole

	// Derive makes everything anew. Equal Inputs have equal Derivations. It runs again when the mesh configuration has
	// changed, or an object of its Kinds, or one that it looked up. Objects are frozen, so it may keep what it made of
	// one by the object's pointer. One goroutine calls it. The slice Objects of what it returns may be written again in
	// the call after the next.
	Derive func(Input) Derivation
}

// Input is what a stage may read.
type Input struct {
	// Objects are those of the stage's kinds that count, in the order of config.Sort, and what earlier stages derived
	// of those kinds.
	Objects []*kinds.Object
	Mesh    *mesh.Config
	// Get returns the object of a source that counts and has this key, or nil.
	Get func(kinds.Key) *kinds.Object
	// Select returns the objects of sources that count, of a kind and a namespace of the server's own cluster, whose
	// labels a selector matches, in the order of names. It looks at every object there is.
	Select func(kind *kinds.Kind, namespace string, labels map[string]string) []*kinds.Object
}

// Derivation is what a stage made of its objects.
type Derivation struct {
	Objects  []Derived
	Findings []diag.Diagnostic
	Statuses []*Status // frozen
	// Shared are secrets that its objects name, and that proxies may therefore be sent.
	Shared []kinds.SharedSecret
}

// Derived is an object that a stage made, and the object that it was made of. An object of a source with the same key
// counts in its place, and so does one of an earlier stage.
type Derived struct {
	Object *kinds.Object
	Origin kinds.Key
}

// Status is what the status of an object should be.
type Status struct {
	Of kinds.Key
	// Value is the fields of the status that count, as JSON has them, by their names; nil for a field that should be
	// absent. Others stay as they are.
	Value map[string]any
	// Current is what the object has of these fields now.
	Current map[string]any
}
