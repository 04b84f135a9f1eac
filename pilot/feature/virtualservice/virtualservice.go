package virtualservice

import (
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{
		Name:        "virtualservice",
		Kinds:       []*kinds.Kind{kinds.VirtualService},
		Unsupported: unsupported,
		Hooks:       feature.Hooks{FiltersReadOf: filtersReadOf, HTTPFilters: httpFilters, Routes: virtualServices{}},
	}
}
