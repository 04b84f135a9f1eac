package featuretest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestDiff(t *testing.T) {
	long := strings.Repeat("x", columns)
	for _, c := range []struct{ name, before, after, want string }{
		{"the same", "{a: 1, b: [x]}", "{b: [x], a: 1}", ""},
		{"scalars", "{a: 1, b: 2, c: 3}", "{a: 1, b: 3, d: 4}", "- b: 2\n+ b: 3\n- c: 3\n+ d: 4\n"},
		{"a short list", "{a: [x, z]}", "{a: [x, w, z]}", "- a: [x, z]\n+ a: [x, w, z]\n"},
		{
			"items between others", "{a: [{name: p, text: LONG}, {name: q}, {name: r}]}",
			"{a: [{name: p, text: LONG}, {name: m}, {name: q}, {name: r}]}",
			"  a:\n    - {name: p, ...}\n+   - {name: m}\n    - {name: q}\n",
		},
		{
			"what is nested", "{a: [{name: p, text: LONG, b: 1}, {name: q}]}", "{a: [{name: p, text: LONG, b: 2}]}",
			"  a:\n    - {name: p, ...}\n-     b: 1\n+     b: 2\n-   - {name: q}\n",
		},
		{
			"the same change again", "{a: [{name: p, text: LONG, b: 1}, {name: q, text: LONG, b: 1}]}",
			"{a: [{name: p, text: LONG, b: 2}, {name: q, text: LONG, b: 2}]}",
			"  a:\n    - {name: p, ...}\n-     b: 1\n+     b: 2\n    - {name: q, ...}\n      as above\n",
		},
		{"order", "{a: [{name: p, text: LONG}, {name: q}]}", "{a: [{name: q}, {name: p, text: LONG}]}",
			"  a:\n+   - {name: q}\n    - {name: p, ...}\n-   - {name: q}\n"},
		{"the whole", "", "{a: 1}", "+ {a: 1}\n"},
		{"nothing", "{a: 1}", "", "- ...\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			value := func(text string) (v any) {
				must.Succeed(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "LONG", long)), &v))
				return v
			}
			if d := cmp.Diff(c.want, resourceDiff(value(c.before), value(c.after))); d != "" {
				t.Error(d)
			}
		})
	}
}
