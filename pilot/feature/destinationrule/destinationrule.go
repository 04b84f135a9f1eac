package destinationrule

import (
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{
		Name:        "destinationrule",
		Kinds:       []*kinds.Kind{kinds.DestinationRule, kinds.Sidecar},
		Unsupported: unsupported, UnsupportedMesh: unsupportedMesh,
		Hooks: feature.Hooks{Destination: policies{}},
	}
}

// policies applies traffic policies.
type policies struct{}
