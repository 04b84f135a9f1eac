package validation

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// mayRestrict reports whether a document of unknown kind may be or contain an object that restricts something: it is
// cut off before its kind, or it names such a kind anywhere.
func (d *decoder) mayRestrict(n *node) bool {
	return n.str("kind") == "" && n.cutOff() || d.namesRestricting(n)
}

// cutOff reports whether a document without a kind may be the beginning of an object of any kind.
func (n *node) cutOff() bool {
	switch n.shape {
	case text:
		return n.plain && slices.ContainsFunc(topFields, func(name string) bool { return strings.HasPrefix(name, n.value) })
	case mapping:
		return slices.ContainsFunc(n.fields, func(f field) bool { return slices.ContainsFunc(topFields, equalFold(f.name)) })
	case list:
		return slices.ContainsFunc(n.items, func(item *node) bool { return item.shape == mapping && item.str("kind") == "" && item.cutOff() })
	}
	return false
}

func equalFold(a string) func(string) bool {
	return func(b string) bool { return strings.EqualFold(a, b) }
}

// namesRestricting reports whether a value, or a value within it, names a kind that restricts something, possibly with
// a typing mistake, or the group of the security kinds.
func (d *decoder) namesRestricting(n *node) bool {
	if n.shape == text {
		return strings.Contains(n.value, "kind:") && NamesRestricting([]byte(n.value), d.vital...)
	}
	return slices.ContainsFunc(n.items, d.namesRestricting) || slices.ContainsFunc(n.fields, func(f field) bool {
		switch {
		case f.value.shape == text && strings.EqualFold(f.name, "kind") && restrictingKind(f.value.value, d.vital...):
			return true
		case f.value.shape == text && strings.EqualFold(f.name, "apiVersion"):
			group, _, _ := strings.Cut(f.value.value, "/")
			return diag.Nearest(group, []string{kinds.AuthorizationPolicy.Group}) != ""
		}
		return d.namesRestricting(f.value)
	})
}

// restrictingKind reports whether a text is the name, or almost the name, of a kind that restricts something or of one
// of the other kinds.
func restrictingKind(name string, others ...*kinds.Kind) bool {
	var names []string
	for _, k := range kinds.All() {
		if Restricts(k) || slices.Contains(others, k) {
			names = append(names, k.Name)
		}
	}
	return diag.Nearest(strings.TrimSuffix(name, "List"), names) != ""
}

// topFields are the fields with which the text of an object may begin.
var topFields = []string{"apiVersion", "kind", "metadata", "spec"}

var (
	separator = regexp.MustCompile(`(?m)^---`)
	comment   = regexp.MustCompile(`(?m)^\s*#.*$`)
	kindLine  = regexp.MustCompile(`(?i)(?:^|[\s{,-])["']?kind["']?\s*:\s*["']?([A-Za-z0-9]+)[^A-Za-z0-9]`)
)

// NamesRestricting reports whether a text contains the name of a kind that restricts something or of one of the other
// kinds, or the group of the security kinds.
func NamesRestricting(data []byte, others ...*kinds.Kind) bool {
	return slices.ContainsFunc(kinds.All(), func(k *kinds.Kind) bool {
		return (Restricts(k) || slices.Contains(others, k)) && bytes.Contains(data, []byte(k.Name)) ||
			k.Security && bytes.Contains(data, []byte(k.Group))
	})
}

// MayRestrict reports whether a file that is Broken may hold an object that a server must not start without: the file
// was not read to its end, its text names the security kinds' group, a kind that restricts something or one of the
// other kinds, or a document in it ends before its kind.
func (r Result) MayRestrict(data []byte, others ...*kinds.Kind) bool {
	switch {
	case r.Broken == nil:
		return false
	case r.Broken.Code != "Syntax", NamesRestricting(data, others...):
		return true
	}
	for _, part := range separator.Split(string(data), -1) {
		part = comment.ReplaceAllString(part, "")
		if strings.TrimSpace(part) == "" {
			continue
		}
		names := kindLine.FindAllStringSubmatch(part, -1)
		if len(names) == 0 || slices.ContainsFunc(names, func(m []string) bool { return restrictingKind(m[1], others...) }) {
			return true
		}
	}
	return false
}
