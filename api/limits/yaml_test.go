package limits

import (
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// TestYAMLNodes: no parser makes more nodes of a text than are counted in it, whatever the text.
func TestYAMLNodes(t *testing.T) {
	parts := []string{
		"a", "b: ", ": ", ":", "- ", "-", "? ", "{", "}", "[", "]", ", ", ",", "\n", "\n  ", "\n- ", "\na: ", "'", "\"", "\"x\":",
		"&a ", "*a ", "!!str ", "# c\n", "|\n ", ">\n ", "<<: *a", "\n---\n", "\n...\n", " ", "\t", "{}", "[]", "{a, b}",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 40).Draw(t, "parts"), "")
		d, largest, all := yaml.NewDecoder(strings.NewReader(text)), 0, 0
		for _, n := range YAMLNodes([]byte(text)) {
			largest, all = max(largest, n), all+n
		}
		sum := 0
		for {
			var doc yaml.Node
			if d.Decode(&doc) != nil {
				break
			}
			n := 0
			for _, root := range doc.Content {
				n += nodes(root)
			}
			if n > largest {
				t.Fatalf("%q: a document has %d nodes, and %d are counted", text, n, largest)
			}
			sum += n
		}
		if sum > all {
			t.Fatalf("%q: there are %d nodes, and %d are counted", text, sum, all)
		}
	})
}

func nodes(n *yaml.Node) int {
	sum := 1
	for _, c := range n.Content {
		sum += nodes(c)
	}
	return sum
}
