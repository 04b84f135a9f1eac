package analysis

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// precedence describes the rule of byPrecedence by which the first of two competing objects comes before the second.
func precedence(first, second *kinds.Object) string {
	if first.Name != second.Name {
		return olderOr(first, second, "both are of the same age, and it sorts first by name")
	}
	return olderOr(first, second, "both are of the same age and name, and it sorts first by namespace")
}

// olderOr returns a text that says that the first of two objects is older, or else the rule by which it comes first.
func olderOr(first, second *kinds.Object, rule string) string {
	if !first.Created.Equal(second.Created) {
		return "it is older"
	}
	return rule
}

// together reports whether the proxies of some namespace may see both of two objects, given their lists of exportTo.
func together(a *kinds.Object, exportA []string, b *kinds.Object, exportB, byDefault []string) bool {
	if exported(exportA, byDefault, a.Namespace, b.Namespace) && exported(exportB, byDefault, b.Namespace, b.Namespace) ||
		exported(exportB, byDefault, b.Namespace, a.Namespace) && exported(exportA, byDefault, a.Namespace, a.Namespace) {
		return true
	}
	return public(exportA, byDefault) && public(exportB, byDefault)
}

// public reports whether an object with that exportTo is exported to all namespaces.
func public(exportTo, byDefault []string) bool {
	return slices.Contains(exports(exportTo, byDefault), "*")
}
