package settings

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Effect says what a setting of Istio does here. It is the mark of its section in the files of this package.
type Effect byte

// Values of Effect.
const (
	Works     Effect = '='
	AlwaysOn  Effect = '+' // istiod's default is always in force
	Harmless  Effect = '~' // without effect, and nothing in a mesh depends on it
	Without   Effect = '!' // without effect, and a mesh that sets it behaves in another way
	Elsewhere Effect = '>' // the reason names the place where it has its effect
	LeftOut   Effect = '-' // it has another meaning here
	Refused   Effect = 'x' // any value but the default is refused
)

// marks are all values of Effect.
const marks = "=+~!>-x"

// Setting is one setting of Istio.
type Setting struct {
	Name    string
	Default string // of a variable
	Effect  Effect
	Why     string // the reason; empty if it works
}

//go:embed environment.txt
var environmentText string

//go:embed agent.txt
var agentText string

//go:embed metadata.txt
var metadataText string

//go:embed values.txt
var valuesText string

// Environment returns the variables of istiod. The variables that name HTTP proxies are among them: istiod fetches the
// keys of token issuers through these proxies.
var Environment = sync.OnceValue(func() []Setting {
	list := Parse(environmentText)
	for i := range list {
		switch s := &list[i]; s.Name {
		case "PILOT_DRAINING_LABEL":
			s.Default = names.LabelDraining
		case "PILOT_GATEWAY_API_CONTROLLER_NAME":
			s.Default = names.GatewayController
		case "PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME":
			s.Default = names.TaintNotReady
		case "PILOT_PERSISTENT_SESSION_HEADER_LABEL":
			s.Default = names.LabelSessionHeader
		case "PILOT_PERSISTENT_SESSION_LABEL":
			s.Default = names.LabelSession
		}
	}
	return list
})

// Agent returns the variables of the agent of a proxy.
var Agent = sync.OnceValue(func() []Setting { return Parse(agentText) })

// Metadata returns the annotations and labels, as annotation:NAME and label:NAME.
var Metadata = sync.OnceValue(func() []Setting { return Parse(metadataText) })

// Values returns the values of Istio's charts, as CHART:VALUE. A row is for all values below it that have no row of
// their own.
var Values = sync.OnceValue(func() []Setting { return Parse(valuesText) })

// Find returns the setting of a name, or nil.
func Find(list []Setting, name string) *Setting {
	if i := slices.IndexFunc(list, func(s Setting) bool { return s.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// Parse reads a table in the format that doc.go describes.
func Parse(text string) (list []Setting) {
	var section Setting
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		mark, why, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == ';':
		case len(mark) == 1 && strings.Contains(marks, mark):
			section = Setting{Effect: Effect(mark[0]), Why: why}
		default:
			s := section
			s.Name, s.Default, _ = strings.Cut(line, "=")
			list = append(list, s)
		}
	}
	return list
}

// Group is settings with the same effect for the same reason, sorted by name.
type Group struct {
	Effect Effect
	Why    string
	Names  []string
}

// Groups returns the settings for which keep is true, by reason. The groups are sorted by their first name.
func Groups(list []Setting, keep func(Setting) bool) (groups []*Group) {
	for _, s := range list {
		if !keep(s) {
			continue
		}
		i := slices.IndexFunc(groups, func(g *Group) bool { return g.Effect == s.Effect && g.Why == s.Why })
		if i < 0 {
			i, groups = len(groups), append(groups, &Group{Effect: s.Effect, Why: s.Why})
		}
		groups[i].Names = append(groups[i].Names, s.Name)
	}
	for _, g := range groups {
		slices.Sort(g.Names)
	}
	slices.SortFunc(groups, func(a, b *Group) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return groups
}

// IsDefault reports whether a text of a variable means the same to istiod as the default. To istiod an empty text is
// the default.
func (s *Setting) IsDefault(text string) bool {
	if text == "" || text == s.Default {
		return true
	}
	if a, err := strconv.ParseBool(text); err == nil {
		if b, err := strconv.ParseBool(s.Default); err == nil {
			return a == b
		}
	}
	if a, err := time.ParseDuration(text); err == nil {
		if b, err := time.ParseDuration(s.Default); err == nil {
			return a == b
		}
	}
	a, err := strconv.ParseFloat(text, 64)
	b, other := strconv.ParseFloat(s.Default, 64)
	return err == nil && other == nil && a == b
}
