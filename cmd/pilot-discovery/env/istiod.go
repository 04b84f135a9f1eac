package env

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/settings"
)

// OfIstiod reports whether istiod 1.31 or the runtime of Go reads a variable.
func OfIstiod(name string) bool {
	return settings.Find(settings.Environment(), name) != nil ||
		slices.Contains([]string{"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT"}, name)
}

// Foreign returns the variables for istiod that are set to another value than its default and have no effect here,
// sorted by name. Variables that Kubernetes sets for a Service named pilot are not among them.
func (e *Env) Foreign() (list []settings.Setting) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(e.names))) {
		s := settings.Find(settings.Environment(), name)
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		switch {
		case slices.Contains(e.Read, name), s != nil && (s.Effect == settings.Works || s.IsDefault(e.Getenv(name))):
		case s != nil:
			list = append(list, *s)
		case strings.HasPrefix(name, "PILOT_") && !ofService:
			list = append(list, settings.Setting{Name: name, Effect: settings.Harmless, Why: "istiod 1.31 does not read it either"})
		}
	}
	return list
}
