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
	Kinds []*kinds.Kind // of the objects that it derives from

	// Derive takes what has changed, and returns what of the derivation has changed by it. It runs when the mesh
	// configuration has changed, an object of its Kinds, one that it watches, or the answer to a question. The history
	// of a stage does not count: after two that lead to the same objects the derivation is the same. One goroutine
	// calls it.
	Derive func(Input) Derivation
}

// Input is what has changed since the last run of a stage, and what it may look up.
type Input struct {
	// Changed are the changes of objects that the stage has to know: those of its Kinds that count, with those that
	// earlier stages derived, and those that it watches. They are in the order of config.Sort, one for each key.
	Changed []kinds.Change
	// Anew has the stage begin again, as if it had never run: it watches nothing, and Changed are all objects of its
	// Kinds. The derivation is whole then.
	Anew bool
	Mesh *mesh.Config
	Lookup
}

// Lookup finds accepted objects of sources for a stage.
type Lookup interface {
	// Get returns the object of a key, or nil. The stage watches the key from then on, until its derivation says that it
	// does not: a change of it is among the next Changed.
	Get(kinds.Key) *kinds.Object
	// Select returns the objects of a kind and a namespace of the server's own cluster whose labels a selector matches,
	// in the order of names. It looks at every object there is. A change that may change the answer makes another run.
	// The question is forgotten in the next run: there it has to be asked again.
	Select(kind *kinds.Kind, namespace string, labels map[string]string) []*kinds.Object
}

// Derivation is what one run of a stage has changed.
type Derivation struct {
	// Parts are those that are new or made again, by comparable keys that the stage chooses. Nil says that there is
	// none any more. The others are as they were.
	Parts map[any]*Part
	// Unwatched are keys that the stage watches no more.
	Unwatched []kinds.Key
}

// Part is a part of what a stage makes. It is frozen. An object that is the same keeps its pointer. No two parts of a
// stage have an object of one key, or a status of one object.
type Part struct {
	Objects  []Derived
	Findings []diag.Diagnostic
	Statuses []*Status
	// Shared are secrets that the objects name, and that proxies may therefore be sent.
	Shared []kinds.SharedSecret
}

// Derived is an object that a stage made, and the object that it was made of. An object of a source with the same key
// counts in its place, and so does one of an earlier stage.
type Derived struct {
	Object *kinds.Object
	Origin kinds.Key
}

// Status is what the status of an object should be. It is frozen.
type Status struct {
	Of kinds.Key
	// Value is the fields of the status that count, as JSON has them, by their names; nil for a field that should be
	// absent. Others stay as they are.
	Value map[string]any
	// Current is what the object has of these fields now.
	Current map[string]any
}
