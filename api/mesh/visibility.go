package mesh

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// EntryVisibility limits where ServiceEntries are visible, by the labels of their namespaces. A nil EntryVisibility
// limits nothing. It is immutable.
type EntryVisibility struct {
	config    *meshv1alpha1.ServiceEntryVisibility
	policies  [][]labels.Selector // selectors of each policy of config, all of which must match
	byDefault []string            // exportTo of entries without one
}

// EntryVisibility returns the limits of serviceEntryVisibility, or nil if sidecars and gateways do not follow it.
func (c *Config) EntryVisibility() *EntryVisibility {
	config := c.GetServiceEntryVisibility()
	if !config.GetApplyToSidecars() {
		return nil
	}
	v := &EntryVisibility{config: config, byDefault: c.GetDefaultServiceExportTo()}
	for _, p := range config.GetPolicies() {
		var all []labels.Selector
		for _, r := range p.GetMatchingRules() {
			selector := labels.Nothing() // a parsed Config has a valid selector in each rule
			if _, is := r.GetMatcher().(*meshv1alpha1.ServiceEntryVisibility_MatchRule_NamespaceSelector); is {
				if s, err := namespaceSelector(r.GetNamespaceSelector()); err == nil {
					selector = s
				}
			}
			all = append(all, selector)
		}
		v.policies = append(v.policies, all)
	}
	return v
}

// Equal reports whether both limit all ServiceEntries in the same way.
func (v *EntryVisibility) Equal(o *EntryVisibility) bool {
	if v == nil || o == nil {
		return v == o
	}
	return proto.Equal(v.config, o.config) && slices.Equal(v.byDefault, o.byDefault)
}

// For returns the visibility of the ServiceEntries of a namespace with some labels: NONE, NAMESPACE or PUBLIC. The
// first policy that matches decides. A namespace that no source has yet is labelled with its name.
func (v *EntryVisibility) For(namespace string, own map[string]string) meshv1alpha1.ServiceEntryVisibility_Visibility {
	if v == nil {
		return meshv1alpha1.ServiceEntryVisibility_PUBLIC
	}
	if own[names.LabelNamespace] == "" {
		named := labels.Set{}
		maps.Copy(named, own)
		named[names.LabelNamespace], own = namespace, named
	}
	visibility := v.config.GetDefaultVisibility()
	for i, selectors := range v.policies {
		if !slices.ContainsFunc(selectors, func(s labels.Selector) bool { return !s.Matches(labels.Set(own)) }) {
			visibility = v.config.GetPolicies()[i].GetVisibility()
			break
		}
	}
	if visibility == meshv1alpha1.ServiceEntryVisibility_VISIBILITY_UNSPECIFIED {
		return meshv1alpha1.ServiceEntryVisibility_PUBLIC
	}
	return visibility
}

// Limit returns the exportTo in force for a ServiceEntry of a namespace with some labels: the part of its own exportTo,
// or of the mesh's default, that its visibility allows.
func (v *EntryVisibility) Limit(exportTo []string, namespace string, own map[string]string) []string {
	switch v.For(namespace, own) {
	case meshv1alpha1.ServiceEntryVisibility_PUBLIC:
		return exportTo
	case meshv1alpha1.ServiceEntryVisibility_NAMESPACE:
		if len(exportTo) == 0 {
			exportTo = v.byDefault
		}
		has := func(values ...string) bool {
			return slices.ContainsFunc(exportTo, func(to string) bool { return slices.Contains(values, strings.TrimSpace(to)) })
		}
		if len(exportTo) == 0 || has("*", ".", namespace) && !has("~") {
			return []string{"."}
		}
	}
	return []string{"~"}
}
