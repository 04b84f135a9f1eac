package migrate

import (
	"bytes"
	"cmp"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// operatorsOf returns the values of the IstioOperators among the objects of files, as --values reads them. Texts that
// are not YAML are findings of the mesh.
func operatorsOf(texts *file.Texts) (list []*release, points []migration.Point) {
	for _, name := range texts.Names() {
		data, _ := texts.Of(name)
		if !bytes.Contains(data, []byte("IstioOperator")) {
			continue
		}
		for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
			var doc yaml.Node
			if err := d.Decode(&doc); err != nil || doc.Decode(new(any)) != nil {
				break
			}
			all := doc.Content
			if items := elements(doc.Content[0], "items"); items != nil {
				all = items
			}
			for _, root := range all {
				if scalar(root, "kind") == "IstioOperator" {
					left := mostOfValues
					if err := checkTree(name, root, &left); err != nil {
						points = append(points, migration.Point{InTheWay: true, Text: err.Error(), Fix: "write the values out without aliases"})
						continue
					}
					o := &operator{file: name}
					o.read(resolved(root))
					list, points = append(list, o.releases()...), append(points, o.points...)
				}
			}
		}
	}
	return list, points
}

// givenFor returns the release of IstioOperators for a workload that runs: a control plane of the same revision, or a
// gateway of the same name. It returns nil if there is none.
func givenFor(t migration.Object, list []*release) *release {
	for _, r := range list {
		switch {
		case r.running != nil:
		case r.chart == "gateway":
			if r.name == t.GetName() || r.name == gatewayName(t.GetName(), t.GetNamespace()) {
				return r
			}
		case r.chart == "istiod":
			if _, ok := discoveryOf(t); ok && cmp.Or(scalar(r.root, "revision"), "default") == revisionOf(t) {
				return r
			}
		}
	}
	return nil
}

// gatewayName returns the name of a gateway in the sections of the verdict.
func gatewayName(name, namespace string) string {
	return fmt.Sprintf("%s in namespace %s", name, namespace)
}
