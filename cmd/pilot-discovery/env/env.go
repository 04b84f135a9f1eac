package env

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Env holds the environment's defaults of flags. A value that cannot be read is left out, with a warning, or keeps a
// server from starting if its variable restricts.
type Env struct {
	values   map[string]string // by the name of the variable
	Environ  []string          // in the form of os.Environ
	names    []string          // of all variables that are set
	Read     []string          // those that have an effect
	Warnings []string
	Refused  []string // values that cannot be read of variables that restrict, with what may be written
}

// restricted returns what read returns for a variable. A value that cannot be read keeps a server from starting, since
// the default may open more than the value means. allowed says what may be written.
func restricted[T any](e *Env, key, allowed string, read func() T) T {
	before := len(e.Warnings)
	value := read()
	if len(e.Warnings) > before {
		e.Warnings = e.Warnings[:before]
		e.Refused = append(e.Refused, fmt.Sprintf("%s=%q is not understood: write %s", key, e.Getenv(key), allowed))
	}
	return value
}

// Permitted reports whether something that opens is on, which it is by default. A value that cannot be read keeps a
// server from starting.
func (e *Env) Permitted(key string) bool {
	return restricted(e, key, "true or false", func() bool { return e.Enabled(key) })
}

// Bound returns how long something may last. A value that cannot be read keeps a server from starting.
func (e *Env) Bound(key string, otherwise time.Duration) time.Duration {
	return restricted(e, key, "a duration such as 12h", func() time.Duration { return e.Duration(key, otherwise) })
}

// Refusal returns an error that names the values that keep a server from starting, or nil.
func (e *Env) Refusal() error {
	if len(e.Refused) == 0 {
		return nil
	}
	return errors.New(strings.Join(e.Refused, "; "))
}

// New takes the environment in the form of os.Environ.
func New(environ []string) Env {
	e := Env{Environ: environ, values: map[string]string{}}
	for _, s := range environ {
		name, value, _ := strings.Cut(s, "=")
		e.names, e.values[name] = append(e.names, name), value
	}
	return e
}

// Getenv returns the value of a variable, or the empty string if the variable is not set.
func (e *Env) Getenv(name string) string { return e.values[name] }

// Foreign returns the names of variables for istiod that are set to another value than its default and have no effect
// here. Variables that Kubernetes sets for a Service named pilot are not among them.
func (e *Env) Foreign() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(e.names)), func(name string) bool {
		otherwise, known := istiodVariables()[name]
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		switch {
		case slices.Contains(e.Read, name), known && sameSetting(e.Getenv(name), otherwise):
			return true
		}
		return !known && (ofService || !strings.HasPrefix(name, "PILOT_"))
	})
}

func (e *Env) Text(key, otherwise string) string {
	return parsed(e, key, otherwise, func(text string) (string, error) { return text, nil })
}

func (e *Env) Duration(key string, otherwise time.Duration) time.Duration {
	return parsed(e, key, otherwise, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err == nil && d < 0 {
			err = strconv.ErrRange
		}
		return d, err
	})
}

// Enabled reports whether something is on, which it is by default.
func (e *Env) Enabled(key string) bool {
	return parsed(e, key, true, strconv.ParseBool)
}

// Asked reports whether something is on, which it is not by default.
func (e *Env) Asked(key string) bool {
	return parsed(e, key, false, strconv.ParseBool)
}

// Cleared reports whether a variable is set, to nothing. Its name alone says what it is for; whatever else it is set to
// has no effect.
func (e *Env) Cleared(key string) bool {
	return e.Text(key, "") == "" && slices.Contains(e.names, key)
}

// Percent is 0 unless it is set.
func (e *Env) Percent(key string) float64 {
	return parsed(e, key, 0, func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err == nil && (v < 0 || v > 100) {
			err = strconv.ErrRange
		}
		return v, err
	})
}

func (e *Env) Number(key string, otherwise int) int {
	return parsed(e, key, otherwise, strconv.Atoi)
}

func parsed[T any](e *Env, key string, otherwise T, parse func(string) (T, error)) T {
	e.Read = append(e.Read, key)
	text := e.Getenv(key)
	if text == "" {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		e.Warnings = append(e.Warnings, fmt.Sprintf("%s=%q is not understood, %v is used", key, text, otherwise))
		return otherwise
	}
	return v
}
