package validation

import "testing"

const positioned = `# a comment
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http:
  - route:
    - destination:
        host: web
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: istio, labels: {a.b/c: d}}
  data:
    mesh: |

      trustDomain: x
      rootNamespace: y
    quoted: "a: 1\nb: 2\n"
- kind: List
  items:
  - apiVersion: v1
    kind: Namespace
    metadata: {name: a}
`

func TestPositions(t *testing.T) {
	p := NewPositions([]byte(positioned))
	for _, c := range []struct {
		object, field string
		line, column  int
	}{
		{"VirtualService a/web", "", 2, 1},
		{"VirtualService a/web", "spec.http[0].route[0].destination.host", 10, 15},
		{"VirtualService a/web", "spec.http[0].route[0].destination.subset", 10, 9}, // not written: what should hold it
		{"VirtualService a/web", "spec.http[3].route", 8, 3},
		{"ConfigMap default/istio", `metadata.labels["a.b/c"]`, 17, 43},
		{"ConfigMap default/istio", "data.mesh", 19, 11},
		{"Namespace a", "metadata.name", 28, 22},
		{"ConfigMap default/other", "data.mesh", 0, 0},
	} {
		line, column, ok := p.Of(c.object, c.field)
		if line != c.line || column != c.column || ok != (c.line > 0) {
			t.Errorf("%s %s: %d:%d %t, want %d:%d", c.object, c.field, line, column, ok, c.line, c.column)
		}
	}
	if line, column, ok := p.Within("ConfigMap default/istio", "data.mesh", 3, 16); line != 22 || column != 22 || !ok {
		t.Errorf("within a block: %d:%d %t", line, column, ok)
	}
	if _, _, ok := p.Within("ConfigMap default/istio", "data.quoted", 2, 1); ok {
		t.Error("a quoted string keeps no lines")
	}
	if _, _, ok := NewPositions([]byte("a: [")).Of("VirtualService a/web", ""); ok {
		t.Error("found in what is no YAML")
	}
}

// A name that a path cannot have as it is stands in quotes, so that no control character is in a path.
func TestFieldPath(t *testing.T) {
	for name, want := range map[string]string{"hosts": "spec.hosts", "a.b": `spec["a.b"]`,
		"": `spec[""]`, "a\x1b[2J": `spec["a\x1b[2J"]`, "\n": `spec["\n"]`, "\u009b": `spec["\u009b"]`} {
		if got := fieldPath("spec", name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
