package file

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Objects returns all objects of the texts, of any kind, in the order of names. It skips texts that cannot be parsed,
// which are findings of a Source.
func (t *Texts) Objects() (list []*unstructured.Unstructured) {
	for _, name := range t.Names() {
		data, _ := t.Of(name)
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
						list = append(list, &unstructured.Unstructured{Object: m})
					}
				}
				continue
			}
			if u.Object != nil {
				list = append(list, u)
			}
		}
	}
	return list
}
