package analysis

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// precedence returns the rule by which the first of two objects that compete comes before the second. The rules are
// those of byPrecedence.
func precedence(first, second *kinds.Object) string {
	switch {
	case !first.Created.Equal(second.Created):
		return "it is older"
	case first.Name != second.Name:
		return "both are of the same age, and it sorts first by name"
	}
	return "both are of the same age and name, and it sorts first by namespace"
}

// precedenceOfHosts is precedence for services of one host: after the age the namespace decides.
func precedenceOfHosts(first, second *kinds.Object) string {
	if !first.Created.Equal(second.Created) {
		return "it is older"
	}
	return "both are of the same age, and its namespace sorts first"
}

// together reports whether the proxies of some namespace may see both of two objects with those lists of exportTo.
func together(a *kinds.Object, exportA []string, b *kinds.Object, exportB, byDefault []string) bool {
	if exported(exportA, byDefault, a.Namespace, b.Namespace) && exported(exportB, byDefault, b.Namespace, b.Namespace) ||
		exported(exportB, byDefault, b.Namespace, a.Namespace) && exported(exportA, byDefault, a.Namespace, a.Namespace) {
		return true
	}
	return public(exportA, byDefault) && public(exportB, byDefault)
}

// public reports whether an object with that exportTo is exported to all namespaces.
func public(exportTo, byDefault []string) bool {
	if len(exportTo) == 0 {
		exportTo = byDefault
	}
	return len(exportTo) == 0 || slices.Contains(exportTo, "*")
}
