package catalog

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// Unsupported returns a finding for each field of an object that has no effect, or not the intended one. The findings
// are declared by translate and by the features that read the kind.
func (l List) Unsupported(o *kinds.Object) []diag.Diagnostic {
	list := translate.Unsupported(o)
	for _, f := range l {
		if f.Unsupported != nil && slices.Contains(f.Kinds, o.Kind) {
			list = append(list, f.Unsupported(o)...)
		}
	}
	return of(o.String(), list)
}

// UnsupportedMesh returns a finding for each field of a mesh configuration that has no effect.
func (l List) UnsupportedMesh(c *mesh.Config) []diag.Diagnostic {
	changed := c.Changed()
	list := translate.UnsupportedMesh(c, changed)
	for _, f := range l {
		if f.UnsupportedMesh != nil {
			list = append(list, f.UnsupportedMesh(c, changed)...)
		}
	}
	return of("MeshConfig", list)
}

// of sets the object of findings.
func of(object string, list []diag.Diagnostic) []diag.Diagnostic {
	for i := range list {
		list[i].Object = object
	}
	return list
}
