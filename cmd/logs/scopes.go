package logs

import (
	"fmt"
	"maps"
	"slices"
)

// Scope is what is logged of one part of the program.
type Scope struct {
	Name, Description string
	Level, StackLevel string // of the lines that are written, and of those with a stack trace
	Callers           bool   // lines name where they come from
}

// Scopes returns every scope known so far, by name. A scope is known from the first logger of it on.
func (l *Levels) Scopes() []Scope {
	l.mu.Lock()
	defer l.mu.Unlock()
	about := descriptions()
	list := make([]Scope, 0, len(l.scopes))
	for _, name := range slices.Sorted(maps.Keys(l.scopes)) {
		s := l.scopes[name]
		list = append(list, Scope{name, about[name], levelName(s.level.Level()), levelName(s.stack.Level()), s.callers.Load()})
	}
	return list
}

// SetScope changes one scope that is known. Its description stays. A level of the default scope applies to each scope
// without a level of its own.
func (l *Levels) SetScope(s Scope) error {
	stack, err := parseLevel(s.StackLevel)
	if err != nil {
		return fmt.Errorf("read the level of stack traces: %w", err)
	}
	l.mu.Lock()
	has := l.scopes[s.Name]
	l.mu.Unlock()
	if has == nil {
		return fmt.Errorf("no scope is called %q", s.Name)
	}
	if err := l.Set(s.Name + ":" + s.Level); err != nil {
		return err
	}
	has.stack.Set(stack)
	has.callers.Store(s.Callers)
	return nil
}

// descriptions says what the scopes are about.
func descriptions() map[string]string {
	return map[string]string{
		defaultScope:           "whatever has no scope of its own",
		"ads":                  "streams of proxies and what they are sent",
		"authorization":        "what peers may do",
		"autoregistration":     "workloads that register themselves",
		"ca":                   "certificates",
		"config":               "reading configuration from files",
		"gateway":              "deployment of Gateways",
		"injection":            "injection of proxies into pods",
		"kube":                 "reading API servers",
		"leader":               "leader election",
		"mcp":                  "configuration of other control planes",
		"model":                "facts that configuration needs",
		"status":               "statuses of objects",
		"validationController": "configurations of webhooks that validate",
	}
}
