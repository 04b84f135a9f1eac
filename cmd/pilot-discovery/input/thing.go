package input

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/istiod-lite/istiod-lite/pilot/config/file"
)

// Thing is an object beside the mesh configuration, such as a Deployment or a webhook configuration.
type Thing struct{ *unstructured.Unstructured }

// Field returns the string at a path, or "".
func (t Thing) Field(path ...string) string {
	s, _, _ := unstructured.NestedString(t.Object, path...)
	return s
}

// List returns the objects of the list at a path.
func (t Thing) List(path ...string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(t.Object, path...)
	var out []map[string]any
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Named returns the kind, namespace and name of the object.
func (t Thing) Named() string {
	if t.GetNamespace() == "" {
		return t.GetKind() + " " + t.GetName()
	}
	return t.GetKind() + " " + t.GetNamespace() + "/" + t.GetName()
}

// Things returns the objects of files. It skips texts that cannot be parsed, which are findings of the sources of
// configuration.
func Things(texts *file.Texts) (list []Thing) {
	for _, name := range texts.Names() {
		data, _ := texts.Of(name)
		d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			u := &unstructured.Unstructured{}
			if err := d.Decode(&u.Object); err != nil {
				break
			}
			if u.IsList() {
				items, _, _ := unstructured.NestedSlice(u.Object, "items")
				for _, x := range items {
					if m, ok := x.(map[string]any); ok {
						list = append(list, Thing{&unstructured.Unstructured{Object: m}})
					}
				}
				continue
			}
			if u.Object != nil {
				list = append(list, Thing{u})
			}
		}
	}
	return list
}
