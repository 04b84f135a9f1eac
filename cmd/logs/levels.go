package logs

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Levels of Istio that slog does not have.
const (
	levelNone  = slog.Level(100)
	levelFatal = slog.Level(12)
)

// Levels holds the level of each scope.
type Levels struct {
	mu     sync.Mutex
	scopes map[string]*scope
}

type scope struct {
	level    slog.LevelVar
	stack    slog.LevelVar // from which level on lines have a stack trace
	callers  atomic.Bool   // lines name where they come from
	explicit bool          // set by name: a change of the default leaves it alone
}

// defaultScope is the level of every scope that has none of its own.
const defaultScope = "default"

// allScopes stands for every scope.
const allScopes = "all"

// NewLevels returns levels that are info for every scope.
func NewLevels() *Levels {
	l := &Levels{scopes: map[string]*scope{}}
	l.scope(defaultScope)
	return l
}

// scope returns the scope of that name and makes it when it is new. A logger without one has the default's.
func (l *Levels) scope(name string) *scope {
	name = cmp.Or(name, defaultScope)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locked(name)
}

func (l *Levels) locked(name string) *scope {
	s := l.scopes[name]
	if s == nil {
		s = &scope{}
		s.stack.Set(levelNone)
		if d := l.scopes[defaultScope]; d != nil {
			s.level.Set(d.level.Level())
			s.stack.Set(d.stack.Level())
			s.callers.Store(d.callers.Load())
		}
		l.scopes[name] = s
	}
	return s
}

// Set changes levels in the form of --log_output_level: "default:info,ads:debug"; "debug" alone is default:debug, and
// "all" is every scope. Nothing is changed when a part of it is wrong.
func (l *Levels) Set(spec string) error {
	changes, err := parseLevels("the log level", spec)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if c.name != allScopes && c.name != defaultScope {
			s := l.locked(c.name)
			s.explicit = true
			s.level.Set(c.level)
			continue
		}
		for _, s := range l.scopes {
			if c.name == allScopes || !s.explicit {
				s.level.Set(c.level)
			}
		}
	}
	return nil
}

// SetStack changes from which level on lines have a stack trace. The form is the one of --log_stacktrace_level, as in
// Set. The level of the default scope applies to all scopes.
func (l *Levels) SetStack(spec string) error {
	changes, err := parseLevels("the level of stack traces", spec)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		l.each(c.name, func(s *scope) { s.stack.Set(c.level) })
	}
	return nil
}

// SetCallers has the lines of the named scopes, with commas between, name where they come from, and no others.
func (l *Levels) SetCallers(names string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.each(allScopes, func(s *scope) { s.callers.Store(false) })
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name != "" {
			l.each(name, func(s *scope) { s.callers.Store(true) })
		}
	}
}

// each calls f with the scope of that name, and with every scope for the default's and for "all".
func (l *Levels) each(name string, f func(*scope)) {
	if name != allScopes && name != defaultScope {
		f(l.locked(name))
		return
	}
	for _, s := range l.scopes {
		f(s)
	}
}

type levelChange struct {
	name  string
	level slog.Level
}

func parseLevels(what, spec string) ([]levelChange, error) {
	var changes []levelChange
	for part := range strings.SplitSeq(spec, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			name, text = defaultScope, name
		}
		level, err := parseLevel(text)
		if err != nil {
			return nil, fmt.Errorf("read %s %q: %w", what, part, err)
		}
		changes = append(changes, levelChange{name, level})
	}
	return changes, nil
}

// All returns the level of every scope known so far, by name.
func (l *Levels) All() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]string, len(l.scopes))
	for name, s := range l.scopes {
		all[name] = levelName(s.level.Level())
	}
	return all
}

func names() map[string]slog.Level {
	return map[string]slog.Level{
		"none": levelNone, "fatal": levelFatal, "error": slog.LevelError,
		"warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug,
	}
}

func parseLevel(text string) (slog.Level, error) {
	all := names()
	if level, ok := all[text]; ok {
		return level, nil
	}
	return 0, fmt.Errorf("%q is none of %s", text, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

func levelName(level slog.Level) string {
	switch {
	case level >= levelNone:
		return "none"
	case level >= levelFatal:
		return "fatal"
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warn"
	case level >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}
