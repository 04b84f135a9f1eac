// Package migration judges a move from istiod to this control plane: which objects have the same effect, which do not
// and why, and what else is in the way.
//
// - migration.go: the Verdict, and the objects that configure a mesh.
// - around.go: the objects beside them, such as Namespaces, webhook configurations and Services.
//
// The command migrate adds what it knows of istiod: its version, its environment, its arguments, its CA and its
// templates of injection. The package is pure and has no state.
package migration
