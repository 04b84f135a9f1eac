package feature

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
)

// Feature is one feature. Its only state is caches, and its functions are pure.
type Feature struct {
	Name  string        // unique in a list of features
	Kinds []*kinds.Kind // kinds of the objects that it reads

	// Part is the part of a cohort's key that holds the objects which Select returns.
	Part Part
	// Select returns a function that selects objects for a workload of a namespace. It is nil if the feature selects
	// none.
	Select func(r Reader, namespace string) func(Workload) Selection

	// Facts returns the facts that an object of Kinds needs, always the same for the same object. It is nil if none
	// needs any. The facts of selected objects are in the Selection, unless they are missing.
	Facts func(*kinds.Object) []facts.Want

	// Unsupported returns a finding for each field of an object of Kinds that has no effect, or not the intended one.
	// UnsupportedMesh does so for a mesh configuration, in which changed holds the differences from the defaults. The
	// catalog sets the object of each finding.
	Unsupported     func(*kinds.Object) []diag.Diagnostic
	UnsupportedMesh func(c *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic

	Hooks
}

// Part is a part of a cohort's key. Values may be combined.
type Part int

// Values of Part.
const (
	ListenersPart Part = 1 << iota // a sidecar's listeners for outgoing traffic, and the listeners of a router
	InboundPart                    // the part that handles calls to the workload: a sidecar's inbound half, or a router's listeners
	ClientPart                     // clusters for outgoing traffic, and route configurations
	PatchPart                      // changes that Patches makes to finished resources
)

// SelectsEverywhere reports whether the objects of a feature are also selected for workloads that the proxy calls. Then
// a changed object may change resources of any proxy.
func (f *Feature) SelectsEverywhere() bool { return f.Transport != nil }
