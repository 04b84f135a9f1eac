package derive

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Stage derives objects from objects, such as VirtualServices from routes of the Gateway API. Registries and snapshots
// treat a derived object like any other, so nothing after the stages knows of it.
type Stage struct {
	Name  string
	Kinds []*kinds.Kind // what Derive reads

	// Derive gets the objects of its kinds that count, in the order of config.Sort, and what earlier stages derived of
	// those kinds. Equal objects have equal Derivations. It runs again when any of them changed. Objects are frozen, so
	// it may keep what it made of one by the object's pointer.
	Derive func(objects []*kinds.Object) Derivation
}

// Derivation is what a stage made of its objects.
type Derivation struct {
	Objects  []Derived
	Findings []diag.Diagnostic
	Statuses []Status
}

// Derived is an object that a stage made, and the object that it was made of. An object of a source with the same key
// counts in its place, and so does one of an earlier stage.
type Derived struct {
	Object *kinds.Object
	Origin kinds.Key
}

// Status is what the status of an object should be, of the type that the object's API has for it.
type Status struct {
	Of    kinds.Key
	Value any
}
