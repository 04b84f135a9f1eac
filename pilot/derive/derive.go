package derive

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Stage derives objects from objects, such as VirtualServices from Ingresses. Registries and snapshots treat a derived
// object like any other object.
type Stage struct {
	Name  string
	Kinds []*kinds.Kind // kinds of the objects from which it derives

	// Derive takes the changes since its last call, and returns the changes of the derivation. It runs when the mesh
	// configuration has changed, an object of its Kinds, an object that it watches, or the result of a Select. The
	// derivation must depend only on the current objects and not on the history of changes. One goroutine calls it.
	Derive func(Input) Derivation
}

// Input holds the changes since the last run of a stage, and a Lookup.
type Input struct {
	// Changed are the changes of accepted objects of the stage's Kinds, including derived ones of earlier stages,
	// and of objects that it watches. They are in the order of config.Sort, one for each key.
	Changed []kinds.Change
	// Anew tells the stage to start from an empty state, as if it had never run: it watches nothing, and Changed holds
	// all objects of its Kinds. The returned derivation is complete.
	Anew bool
	Mesh *mesh.Config
	Lookup
}

// Lookup finds accepted objects of sources for a stage.
type Lookup interface {
	// Get returns the object of a key, or nil. The stage watches the key from then on, until a Derivation has it in
	// Unwatched: a change of the object is in the next Changed.
	Get(kinds.Key) *kinds.Object
	// Select returns the objects of a kind and a namespace of the server's own cluster whose labels a selector matches,
	// in the order of names. It scans all objects. The stage runs again if the result may have changed. A query holds
	// for one run: the next run must repeat it.
	Select(kind *kinds.Kind, namespace string, labels map[string]string) []*kinds.Object
}

// Derivation holds the changes that one run of a stage makes.
type Derivation struct {
	// Parts are the new and changed parts, by comparable keys that the stage chooses. A nil part is removed. All other
	// parts are unchanged.
	Parts map[any]*Part
	// Unwatched are keys that the stage stops watching.
	Unwatched []kinds.Key
}

// Part is a part of the output of a stage. It is immutable. An unchanged object keeps its pointer. No two parts of a
// stage have an object of one key, or a status of one object.
type Part struct {
	Objects  []Derived
	Findings []diag.Diagnostic
	Statuses []*Status
	// Shared are secrets that the objects refer to, and that proxies may therefore be sent.
	Shared []kinds.SharedSecret
}

// Derived is an object that a stage made, and the object from which it was made. An object of a source with the same
// key takes precedence over it, and so does one of an earlier stage.
type Derived struct {
	Object *kinds.Object
	Origin kinds.Key
}

// Status is the wanted status of an object. It is immutable.
type Status struct {
	Of kinds.Key
	// Value holds the wanted fields of the status by their JSON names, nil for a field that must be absent. Other
	// fields stay unchanged.
	Value map[string]any
	// Current holds the present values of these fields.
	Current map[string]any
}
