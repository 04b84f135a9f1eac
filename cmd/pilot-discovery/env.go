package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// env holds the environment's defaults of flags. A value that cannot be read is left out, with a warning, or keeps a
// server from starting if its variable restricts.
type env struct {
	getenv   func(string) string
	environ  []string // in the form of os.Environ
	names    []string // of all variables that are set
	read     []string // those that have an effect
	warnings []string
	refused  []string // values that cannot be read of variables that restrict, with what may be written
}

// restricted returns what read returns for a variable. A value that cannot be read keeps a server from starting, since
// the default may open more than the value means. allowed says what may be written.
func restricted[T any](e *env, key, allowed string, read func() T) T {
	before := len(e.warnings)
	value := read()
	if len(e.warnings) > before {
		e.warnings = e.warnings[:before]
		e.refused = append(e.refused, fmt.Sprintf("%s=%q is not understood: write %s", key, e.getenv(key), allowed))
	}
	return value
}

// permitted reports whether something that opens is on, which it is by default. A value that cannot be read keeps a
// server from starting.
func (e *env) permitted(key string) bool {
	return restricted(e, key, "true or false", func() bool { return e.enabled(key) })
}

// bound returns how long something may last. A value that cannot be read keeps a server from starting.
func (e *env) bound(key string, otherwise time.Duration) time.Duration {
	return restricted(e, key, "a duration such as 12h", func() time.Duration { return e.duration(key, otherwise) })
}

// refusal returns an error that names the values that keep a server from starting, or nil.
func (e *env) refusal() error {
	if len(e.refused) == 0 {
		return nil
	}
	return errors.New(strings.Join(e.refused, "; "))
}

// newEnv takes the environment in the form of os.Environ.
func newEnv(environ []string) env {
	e, values := env{environ: environ}, map[string]string{}
	for _, s := range environ {
		name, value, _ := strings.Cut(s, "=")
		e.names, values[name] = append(e.names, name), value
	}
	e.getenv = func(name string) string { return values[name] }
	return e
}

// foreign returns the names of variables for istiod that are set to another value than its default and have no effect
// here. Variables that Kubernetes sets for a Service named pilot are not among them.
func (e *env) foreign() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(e.names)), func(name string) bool {
		otherwise, known := istiodVariables()[name]
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		switch {
		case slices.Contains(e.read, name), known && sameSetting(e.getenv(name), otherwise):
			return true
		}
		return !known && (ofService || !strings.HasPrefix(name, "PILOT_"))
	})
}

func (e *env) text(key, otherwise string) string {
	return parsed(e, key, otherwise, func(text string) (string, error) { return text, nil })
}

func (e *env) duration(key string, otherwise time.Duration) time.Duration {
	return parsed(e, key, otherwise, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err == nil && d < 0 {
			err = strconv.ErrRange
		}
		return d, err
	})
}

// enabled reports whether something is on, which it is by default.
func (e *env) enabled(key string) bool {
	return parsed(e, key, true, strconv.ParseBool)
}

// asked reports whether something is on, which it is not by default.
func (e *env) asked(key string) bool {
	return parsed(e, key, false, strconv.ParseBool)
}

// cleared reports whether a variable is set, to nothing. Its name alone says what it is for; whatever else it is set to
// has no effect.
func (e *env) cleared(key string) bool {
	return e.text(key, "") == "" && slices.Contains(e.names, key)
}

// percent is 0 unless it is set.
func (e *env) percent(key string) float64 {
	return parsed(e, key, 0, func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err == nil && (v < 0 || v > 100) {
			err = strconv.ErrRange
		}
		return v, err
	})
}

func (e *env) number(key string, otherwise int) int {
	return parsed(e, key, otherwise, strconv.Atoi)
}

func parsed[T any](e *env, key string, otherwise T, parse func(string) (T, error)) T {
	e.read = append(e.read, key)
	text := e.getenv(key)
	if text == "" {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		e.warnings = append(e.warnings, fmt.Sprintf("%s=%q is not understood, %v is used", key, text, otherwise))
		return otherwise
	}
	return v
}
