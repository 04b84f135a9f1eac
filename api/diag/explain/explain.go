package explain

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

//go:embed findings.md
var text string

// Entry explains one code.
type Entry struct {
	Code    string `json:"code"`
	Name    string `json:"name,omitempty"` // Istio's name, if Istio has the code
	Meaning string `json:"meaning"`
	YAML    string `json:"yaml,omitempty"`    // objects that have the finding, if files can show it
	Message string `json:"example,omitempty"` // an example of the message otherwise
	Fix     string `json:"fix"`
}

// All returns the entries sorted by code.
func All() []Entry {
	var all []Entry
	for section := range strings.SplitSeq("\n"+text, "\n## ") {
		head, body, _ := strings.Cut(section, "\n")
		if head == "" {
			continue
		}
		e := Entry{}
		e.Code, e.Name, _ = strings.Cut(head, " ")
		if before, rest, found := strings.Cut(body, "```yaml\n"); found {
			var after string
			e.YAML, after, _ = strings.Cut(rest, "```\n")
			body = before + after
		}
		for paragraph := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
			paragraph = strings.Join(strings.Fields(paragraph), " ") // undo the wrapping
			switch {
			case strings.HasPrefix(paragraph, "Fix: "):
				e.Fix = strings.TrimPrefix(paragraph, "Fix: ")
			case strings.HasPrefix(paragraph, "Example: "):
				e.Message = strings.Trim(strings.TrimPrefix(paragraph, "Example: "), "`")
			case paragraph != "":
				e.Meaning = strings.TrimSpace(e.Meaning + "\n\n" + paragraph)
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(strings.ToLower(a.Code), strings.ToLower(b.Code)) })
	return all
}

// Find returns the entry with a code or with Istio's name of a code, ignoring case. If there is none, near is the most
// similar code, or "".
func Find(code string) (e Entry, near string, found bool) {
	var known []string
	for _, e := range All() {
		if strings.EqualFold(e.Code, code) || e.Name != "" && strings.EqualFold(e.Name, code) {
			return e, "", true
		}
		known = append(known, e.Code)
	}
	return Entry{}, diag.Nearest(code, known), false
}
