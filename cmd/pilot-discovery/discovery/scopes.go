package discovery

import (
	"github.com/istiod-lite/istiod-lite/cmd/logs"
	"github.com/istiod-lite/istiod-lite/pilot/ctrlz"
)

// scopes are the log scopes, as ControlZ shows and sets them.
type scopes struct{ levels *logs.Levels }

func (s scopes) List() []ctrlz.Scope {
	all := s.levels.Scopes()
	list := make([]ctrlz.Scope, len(all))
	for i, a := range all {
		list[i] = ctrlz.Scope{Name: a.Name, Description: a.Description, OutputLevel: a.Level, StackLevel: a.StackLevel, LogCallers: a.Callers}
	}
	return list
}

func (s scopes) Set(scope ctrlz.Scope) error {
	return s.levels.SetScope(logs.Scope{Name: scope.Name, Level: scope.OutputLevel, StackLevel: scope.StackLevel, Callers: scope.LogCallers})
}
