package mesh

import (
	"slices"
	"strings"
	"testing"
)

// TestEntryVisibility limits exportTo of ServiceEntries by the labels of their namespaces: the first policy that
// matches decides, else the default. A limit never adds a namespace.
func TestEntryVisibility(t *testing.T) {
	const policies = `
serviceEntryVisibility:
  applyToSidecars: true
  defaultVisibility: NAMESPACE
  policies:
  - {visibility: NONE, matchingRules: [{namespaceSelector: {matchLabels: {tier: shut}}}]}
  - {visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchLabels: {tier: open}}},
     {namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [red]}]}}]}
  - {matchingRules: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shared}}}]}
`
	catchAll := "serviceEntryVisibility: {applyToSidecars: true, policies: [{visibility: NONE}, {visibility: PUBLIC}]}"
	everything := "serviceEntryVisibility: {applyToSidecars: true, policies: [{visibility: NONE, matchingRules: [{namespaceSelector: {}}]}]}"
	for _, c := range []struct{ mesh, namespace, labels, exportTo, want string }{
		{policies, "a", "", "", "."},
		{policies, "a", "", "*", "."},
		{policies, "a", "", "b a", "."},
		{policies, "a", "", "b", "~"},
		{policies, "a", "", ". ~", "~"},
		{policies, "a", "tier=shut", "*", "~"},
		{policies, "a", "tier=open", "*", "*"},
		{policies, "a", "tier=open", "", ""},
		{policies, "a", "tier=open", "b", "b"},
		{policies, "a", "tier=open team=red", "*", "."},
		{policies, "shared", "", "*", "*"},
		{policies, "other", "kubernetes.io/metadata.name=shared", "*", "*"},
		{policies + "defaultServiceExportTo: ['~']\n", "a", "", "", "~"},
		{policies + "defaultServiceExportTo: [b]\n", "a", "", "", "~"},
		{policies + "defaultServiceExportTo: [b]\n", "a", "tier=open", "", ""},
		{catchAll, "a", "", "*", "~"},
		{everything, "a", "x=y", "*", "~"},
		{"serviceEntryVisibility: {applyToSidecars: true}", "a", "", "*", "*"},
		{"serviceEntryVisibility: {defaultVisibility: NONE}", "a", "", "*", "*"}, // only for ambient mode
		{"", "a", "", "b", "b"},
	} {
		labels := map[string]string{}
		for _, text := range strings.Fields(c.labels) {
			key, value, _ := strings.Cut(text, "=")
			labels[key] = value
		}
		v := parse(t, c.mesh).EntryVisibility()
		if got := v.Limit(strings.Fields(c.exportTo), c.namespace, labels); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("namespace %s with %s, exportTo %q: %q, want %q, by %s", c.namespace, c.labels, c.exportTo, got, c.want, c.mesh)
		}
		if !v.Equal(parse(t, c.mesh).EntryVisibility()) || v.Equal(parse(t, strings.Replace(policies, "NONE", "PUBLIC", 1)).EntryVisibility()) {
			t.Errorf("not equal to itself, or to another one: %s", c.mesh)
		}
	}
}
