package env

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/names"
)

//go:embed istiod.env
var istiodEnvironment string

// Foreign is a variable of istiod, and why it has no effect here.
type Foreign struct {
	Name, Otherwise string
	Why             string // empty if the variable has an effect
	Harmless        bool   // whether a mesh behaves the same without it
}

// istiodVariables returns the variables that istiod 1.31 reads, by name. The variables that name HTTP proxies are among
// them: istiod fetches the keys of token issuers through these proxies.
var istiodVariables = sync.OnceValue(func() map[string]Foreign {
	all := map[string]Foreign{}
	var section Foreign
	for line := range strings.Lines(istiodEnvironment) {
		line = strings.TrimSpace(line)
		switch name, value, _ := strings.Cut(line, "="); {
		case line == "" || line[0] == ';':
		case strings.ContainsRune("=~!", rune(line[0])):
			section = Foreign{Why: strings.TrimSpace(line[1:]), Harmless: line[0] == '~'}
		default:
			v := section
			v.Name, v.Otherwise = name, value
			all[name] = v
		}
	}
	for name, otherwise := range map[string]string{
		"PILOT_DRAINING_LABEL":                      names.LabelDraining,
		"PILOT_GATEWAY_API_CONTROLLER_NAME":         names.GatewayController,
		"PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME": names.TaintNotReady,
		"PILOT_PERSISTENT_SESSION_HEADER_LABEL":     names.LabelSessionHeader,
		"PILOT_PERSISTENT_SESSION_LABEL":            names.LabelSession,
	} {
		v := all[name]
		v.Otherwise = otherwise
		all[name] = v
	}
	return all
})

// WithoutEffect returns the variables of istiod that have no effect here, in groups of one reason, sorted by name.
func WithoutEffect() [][]Foreign {
	byReason := map[string][]Foreign{}
	for _, v := range istiodVariables() {
		if v.Why != "" {
			byReason[v.Why] = append(byReason[v.Why], v)
		}
	}
	var groups [][]Foreign
	for _, list := range byReason {
		slices.SortFunc(list, func(a, b Foreign) int { return strings.Compare(a.Name, b.Name) })
		groups = append(groups, list)
	}
	slices.SortFunc(groups, func(a, b []Foreign) int { return strings.Compare(a[0].Name, b[0].Name) })
	return groups
}

// Foreign returns the variables for istiod that are set to another value than its default and have no effect here,
// sorted by name. Variables that Kubernetes sets for a Service named pilot are not among them.
func (e *Env) Foreign() (list []Foreign) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(e.names))) {
		v, known := istiodVariables()[name]
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		switch {
		case slices.Contains(e.Read, name), known && (v.Why == "" || sameSetting(e.Getenv(name), v.Otherwise)):
		case known:
			list = append(list, v)
		case strings.HasPrefix(name, "PILOT_") && !ofService:
			list = append(list, Foreign{Name: name, Why: "istiod 1.31 does not read it either", Harmless: true})
		}
	}
	return list
}

// sameSetting reports whether two texts of a variable mean the same to istiod. To istiod an empty text is the default.
func sameSetting(text, otherwise string) bool {
	if text == "" || text == otherwise {
		return true
	}
	if a, err := strconv.ParseBool(text); err == nil {
		if b, err := strconv.ParseBool(otherwise); err == nil {
			return a == b
		}
	}
	if a, err := time.ParseDuration(text); err == nil {
		if b, err := time.ParseDuration(otherwise); err == nil {
			return a == b
		}
	}
	a, err := strconv.ParseFloat(text, 64)
	b, other := strconv.ParseFloat(otherwise, 64)
	return err == nil && other == nil && a == b
}
