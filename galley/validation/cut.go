package validation

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// cutOff reports whether a document without a kind may be the beginning of an object. That may be of any kind.
func (n *node) cutOff() bool {
	switch n.shape {
	case text:
		return n.plain && slices.ContainsFunc(topFields, func(name string) bool { return strings.HasPrefix(name, n.value) })
	case mapping:
		return slices.ContainsFunc(topFields, func(name string) bool { return n.get(name) != nil })
	case list:
		return slices.ContainsFunc(n.items, func(item *node) bool { return item.shape == mapping && holdsSecurity(item) })
	}
	return false
}

// topFields are the fields with which the text of an object may begin.
var topFields = []string{"apiVersion", "kind", "metadata", "spec"}

var (
	separator = regexp.MustCompile(`(?m)^---`)
	comment   = regexp.MustCompile(`(?m)^\s*#.*$`)
	kindLine  = regexp.MustCompile(`(?:^|[\s{,-])["']?kind["']?\s*:\s*["']?([A-Za-z0-9]+)[^A-Za-z0-9]`)
)

// NamesSecurity reports whether a text contains the name or the group of a security kind, or the name of one of the
// other kinds.
func NamesSecurity(data []byte, others ...*kinds.Kind) bool {
	return slices.ContainsFunc(kinds.All(), func(k *kinds.Kind) bool {
		named := bytes.Contains(data, []byte(k.Name)) || k.Security && bytes.Contains(data, []byte(k.Group))
		return named && (k.Security || slices.Contains(others, k))
	})
}

// MayHoldSecurity reports whether a file that is Broken may hold an object that a server must not start without: the
// file was not read to its end, its text names a security kind, its group, or one of the other kinds, or a document in
// it ends before its kind.
func (r Result) MayHoldSecurity(data []byte, others ...*kinds.Kind) bool {
	switch {
	case r.Broken == nil:
		return false
	case r.Broken.Code != "Syntax", NamesSecurity(data, others...):
		return true
	}
	for _, part := range separator.Split(string(data), -1) {
		part = comment.ReplaceAllString(part, "")
		if strings.TrimSpace(part) == "" {
			continue
		}
		names := kindLine.FindAllStringSubmatch(part, -1)
		if len(names) == 0 || slices.ContainsFunc(names, func(m []string) bool { return securityKind(m[1]) }) {
			return true
		}
	}
	return false
}
