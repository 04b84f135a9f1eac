package scope

import "slices"

// visibility is the reason why an object is visible in a namespace, or hidden.
type visibility int

// Values of visibility, by precedence.
const (
	private visibility = iota // the object is in this namespace, and exported to it alone or to namespaces by name
	named                     // exportTo names the namespace
	public                    // the object is exported to all namespaces
	hidden                    // the object is not visible
)

// visibilityIn returns the visibility in namespace to of an object in namespace own with an exportTo. byDefault is the
// mesh's default exportTo.
func visibilityIn(exportTo, byDefault []string, own, to string) visibility {
	if len(exportTo) == 0 {
		exportTo = byDefault
	}
	switch {
	case len(exportTo) == 0, slices.Contains(exportTo, "*"):
		return public
	case own == to && (slices.Contains(exportTo, ".") || slices.Contains(exportTo, own)):
		return private
	case slices.Contains(exportTo, to):
		return named
	}
	return hidden
}

// serviceExported is exported for a service. A service that is exported to "~" is visible nowhere, whatever else its
// exportTo says.
func serviceExported(exportTo, byDefault []string, own, to string) bool {
	if len(exportTo) == 0 {
		exportTo = byDefault
	}
	return !slices.Contains(exportTo, "~") && exported(exportTo, nil, own, to)
}

// exported reports whether an object of namespace own, with that exportTo, is visible in namespace to.
func exported(exportTo, byDefault []string, own, to string) bool {
	return visibilityIn(exportTo, byDefault, own, to) != hidden
}
