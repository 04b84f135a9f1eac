package migrate

import (
	"fmt"
	"strings"
	"testing"
)

// TestLargeValues reads files whose size, keys or aliases cost more than a file of values may. Each is an error.
func TestLargeValues(t *testing.T) {
	var keys, aliases strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&keys, "k%d: {}\n", i)
	}
	aliases.WriteString("a0: &a0 {x: 1}\n")
	for i := range 30 {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	application := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec:\n  source:\n    chart: istiod\n" +
		"    helm:\n      values: |\n        a: &a {b: *a}\n"
	for _, c := range []struct{ name, text, want string }{
		{"bytes", strings.Repeat("# comment\n", 10<<20), "bytes"},
		{"keys", keys.String(), "more than 50000 values"},
		{"documents", strings.Repeat("---\nk: {}\n", 100_000), "more than 50000 values"},
		{"aliases", aliases.String(), "with the values that aliases repeat"},
		{"an alias of itself", "a: &a {b: *a}\n", "-:1: anchor a contains itself"},
		{"an alias of itself in a text", application, "anchor a contains itself"},
	} {
		if _, _, err := readValues("-", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
