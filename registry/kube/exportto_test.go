package kube

import (
	"slices"
	"testing"
)

// TestExportTo: an annotation that is there and names no namespace makes a service visible nowhere.
func TestExportTo(t *testing.T) {
	for annotation, want := range map[string][]string{"": nil, " ., b ,": {".", "b"}, "*": {"*"}, " ": {"~"}, ",": {"~"},
		"not a namespace": {"not a namespace"}} {
		if got := exportTo(annotation); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", annotation, got, want)
		}
	}
}
