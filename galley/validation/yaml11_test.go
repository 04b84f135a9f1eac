package validation

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestTreeIsWhatKubectlReads compares the JSON of documents with what kubectl sends for them.
func TestTreeIsWhatKubectlReads(t *testing.T) {
	for _, text := range []string{
		"{a: yes, b: No, c: ON, d: off, e: y, f: N, g: true, h: \"yes\", i: 'no', j: yEs, k: !!str yes}",
		"{yes: a, no: b, 1: d, 0777: e, 1_000: f, 1.50: g, \"y\": h, 2001-01-01: i}",
		"{a: 0777, b: 0o7, c: 1_000, d: 1:30, e: 0x1F, f: 0b11, g: 1e3, h: 1.0, i: +1, j: 08}",
		"{a: ~, b: null, c: Null, d: NULL, e: nULL, f: , g: ''}",
		"{a: 2001-01-01, b: 2001-01-01T01:02:03Z, c: 1e999}",
		"{a: .inf}", "{a: .NaN}", "{~: a}", "{[a]: b}",
		"a: &x {k: 1, l: 1}\nb: {<<: *x, k: 2}\n",
		"a: &x {k: 1, l: 1}\nb: {k: 2, <<: *x}\n",
		"a: &x {k: 1}\nb: &y {k: 2, l: 2}\nc: {<<: [*x, *y], m: 3}\n",
		"a: &x {k: 1}\nb: &y {k: 2, l: 2}\nc: {m: 3, l: 4, <<: [*x, *y]}\n",
		"a: &x {k: 1}\nb: &y {<<: *x, l: 2}\nc: {<<: *y}\n",
		"a: &x {k: 1}\nb: {\"<<\": *x}\n", "a: &x yes\nb: *x\n", "a: &x {k: 1}\nb: {<<: [*x], <<: {l: 2}}\n",
	} {
		f := &findings{}
		b := treeBuilder{maxDepth: limits.Default().YAMLDepth, budget: 1000, open: map[*yaml.Node]bool{}, found: f}
		var doc yaml.Node
		if err := yaml.NewDecoder(strings.NewReader(text)).Decode(&doc); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		tree := b.build(doc.Content[0], "", 1)
		want, err := sigsyaml.YAMLToJSON([]byte(text))
		if err != nil {
			if !f.failed() {
				t.Errorf("%s\nis an error for kubectl (%v), and has no finding", text, err)
			}
			continue
		}
		var a, b1 any
		if err := json.Unmarshal(tree.json(), &a); err != nil {
			t.Fatalf("%s: %s: %v", text, tree.json(), err)
		}
		must.Succeed(t, json.Unmarshal(want, &b1))
		if !reflect.DeepEqual(a, b1) || f.failed() {
			t.Errorf("%s\nis %s, for kubectl %s; findings %v", text, tree.json(), want, f.list)
		}
	}
}
