package scope

import "slices"

// exported reports whether an object of namespace own, with that exportTo, is visible in namespace to.
func exported(exportTo, byDefault []string, own, to string) bool {
	if len(exportTo) == 0 {
		exportTo = byDefault
	}
	if len(exportTo) == 0 {
		return true
	}
	return slices.ContainsFunc(exportTo, func(e string) bool {
		switch e {
		case "*":
			return true
		case "~":
			return false
		case ".":
			return own == to
		}
		return e == to
	})
}
