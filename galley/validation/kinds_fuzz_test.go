package validation

import (
	"encoding/json"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// istioKinds are those whose objects a webhook reviews.
func istioKinds() []*kinds.Kind {
	return slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool { return !k.Istio })
}

// FuzzKinds: whatever the spec of an Istio kind holds, a review of it takes memory in proportion to its size, and says
// the same each time. Every finding names a field. What a server would not use is an error or a warning of the review.
// The same text in YAML has the same findings.
func FuzzKinds(f *testing.F) {
	all := istioKinds()
	for i, a := range agreements(f) {
		if i%16 == 0 {
			f.Add(slices.IndexFunc(all, func(k *kinds.Kind) bool { return k.Name == a.gvk.Kind }), a.spec)
		}
	}
	f.Fuzz(func(t *testing.T, which int, spec string) {
		if which < 0 || which >= len(all) || len(spec) > 64<<10 || !json.Valid([]byte(spec)) {
			return
		}
		kind := all[which]
		judge(t, kind, spec)
	})
}

// judge holds one object to what FuzzKinds says.
func judge(t *testing.T, kind *kinds.Kind, spec string) {
	t.Helper()
	l := limits.Default()
	gvk := schema.GroupVersionKind{Group: kind.Group, Version: kind.Versions[0], Kind: kind.Name}
	object := withSpec(gvk, spec)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	review, _ := Review(l, gvk, []byte(object))
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(reviewBase+reviewBytes*len(object)); took > most {
		t.Errorf("%s %s: a review of %d bytes took %d bytes of memory, more than %d", kind.Name, clipped(spec), len(object), took, most)
	}
	if again, _ := Review(l, gvk, []byte(object)); !reflect.DeepEqual(review, again) {
		t.Errorf("%s %s: found %v, and then %v", kind.Name, clipped(spec), review, again)
	}
	used := Object(l, kind, []byte(object))
	for _, d := range slices.Concat(review, used.Findings) {
		named := strings.HasPrefix(d.Field, "spec") || strings.HasPrefix(d.Field, "metadata")
		if !named && d.Code != "Syntax" && d.Code != "Limit" {
			t.Errorf("%s %s: no field in %+v", kind.Name, clipped(spec), d)
		}
		if d.Object == "" || d.Message == "" {
			t.Errorf("%s %s: no object or message in %+v", kind.Name, clipped(spec), d)
		}
	}
	if used.Object == nil && len(review) == 0 {
		t.Errorf("%s %s: stored without a word, and not used: %v", kind.Name, clipped(spec), used.Findings)
	}
	inBothForms(t, object)
}

// inBothForms checks that an object is checked in the same way as JSON and as YAML.
func inBothForms(t *testing.T, object string) {
	t.Helper()
	var value any
	numbers := json.NewDecoder(strings.NewReader(object))
	numbers.UseNumber()
	must.Succeed(t, numbers.Decode(&value))
	asJSON, err := json.Marshal(value)
	must.Succeed(t, err)
	asYAML, err := yaml.Marshal(yamlNode(value))
	must.Succeed(t, err)
	l := limits.Default()
	a, b := Decode(l, "", asJSON), Decode(l, "", asYAML)
	if a.Broken != nil || b.Broken != nil { // a character that YAML does not allow, or a limit
		return
	}
	if a, b := whatIsFound(a), whatIsFound(b); !slices.Equal(a, b) {
		t.Errorf("%s: found in JSON\n%q\nand in YAML\n%q", clipped(object), a, b)
	}
}

// yamlNode returns a value of JSON as YAML, numbers as they are written.
func yamlNode(value any) *yaml.Node {
	switch value := value.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			n.Content = append(n.Content, yamlNode(name), yamlNode(value[name]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range value {
			n.Content = append(n.Content, yamlNode(item))
		}
		return n
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value}
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatBool(value)}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}
}

// What a review may allocate: so much, and so much for each byte of the object.
const (
	reviewBase  = 8 << 20
	reviewBytes = 1 << 10
)

func clipped(s string) string { return s[:min(len(s), 300)] }

// whatIsFound returns the findings of a file without their places, sorted.
func whatIsFound(r Result) []string {
	var all []string
	for _, d := range r.Findings() {
		d.Line, d.Column = 0, 0
		all = append(all, d.String())
	}
	slices.Sort(all)
	return all
}
