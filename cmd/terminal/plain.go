package terminal

import (
	"strings"
	"unicode"
)

// Plain returns a text as one line that a terminal prints as it is. It replaces by a space each control character, each
// line break, and each character that is invisible or changes the direction of text. Such characters in texts of
// servers, proxies and files could change colours or forge lines of a table.
func Plain(text string) string { return plain(text, "") }

// Lines is Plain for a text of several lines. It keeps line breaks and tabs.
func Lines(text string) string { return plain(text, "\n\t") }

// plain replaces the characters that Plain replaces, except the ones in keep.
func plain(text, keep string) string {
	return strings.Map(func(r rune) rune {
		if (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) && !strings.ContainsRune(keep, r) {
			return ' '
		}
		return r
	}, text)
}
