package names

import "strings"

// HeaderName reports whether a text can be the name of a header, also of a pseudo-header such as :path.
func HeaderName(name string) bool {
	name = strings.TrimPrefix(name, ":")
	return name != "" &&
		!strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) })
}
