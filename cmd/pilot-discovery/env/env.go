package env

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Env reads the defaults of flags from environment variables. It ignores an invalid value with a warning. If the
// variable restricts something, the invalid value keeps the server from starting.
type Env struct {
	values   map[string]string // by the name of the variable
	Environ  []string          // in the form of os.Environ
	names    []string          // of all variables that are set
	Read     []string          // variables that have an effect
	Warnings []string
	Refused  []string // invalid values of variables that restrict something, with the valid values
}

// Permitted returns the value of a variable that permits something by default. An invalid value keeps a server from
// starting.
func (e *Env) Permitted(key string) bool { return strict(e, key, true, booleans, strconv.ParseBool) }

// Restricted returns the value of a variable that restricts something if it is true, and is false by default. An
// invalid value keeps a server from starting.
func (e *Env) Restricted(key string) bool { return strict(e, key, false, booleans, strconv.ParseBool) }

// OneOf returns the value of a variable that has one of some values, by default the first. Any other value keeps a
// server from starting.
func (e *Env) OneOf(key string, allowed ...string) string {
	return strict(e, key, allowed[0], strings.Join(allowed, " or "), func(text string) (string, error) {
		if !slices.Contains(allowed, text) {
			return "", strconv.ErrSyntax
		}
		return text, nil
	})
}

// Bound returns a time limit. An invalid value keeps a server from starting.
func (e *Env) Bound(key string, otherwise time.Duration) time.Duration {
	return strict(e, key, otherwise, durations, parseDuration)
}

// Prefix returns a range of addresses of the family of otherwise. An invalid value keeps a server from starting.
func (e *Env) Prefix(key string, otherwise netip.Prefix, longest int) netip.Prefix {
	allowed := fmt.Sprintf("a range of addresses such as %v, of at most %d bits", otherwise, longest)
	return strict(e, key, otherwise, allowed, func(text string) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(text)
		if err == nil && (p.Addr().Is4() != otherwise.Addr().Is4() || p.Bits() > longest) {
			err = strconv.ErrRange
		}
		return p, err
	})
}

// Refusal returns an error that names the values that keep a server from starting, or nil.
func (e *Env) Refusal() error {
	if len(e.Refused) == 0 {
		return nil
	}
	return errors.New(strings.Join(e.Refused, "; "))
}

// RefusalOf is Refusal for the values of some variables.
func (e *Env) RefusalOf(keys ...string) error {
	for _, text := range e.Refused {
		if key, _, _ := strings.Cut(text, "="); slices.Contains(keys, key) {
			return errors.New(text)
		}
	}
	return nil
}

// New returns an Env for an environment in the form of os.Environ.
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

// Text returns the value of a variable, or otherwise if it is not set.
func (e *Env) Text(key, otherwise string) string {
	e.Read = append(e.Read, key)
	return cmp.Or(e.Getenv(key), otherwise)
}

// Duration returns the duration that a variable holds, or otherwise if it is not set.
func (e *Env) Duration(key string, otherwise time.Duration) time.Duration {
	return lenient(e, key, otherwise, durations, parseDuration)
}

// Enabled returns the value of a variable that is true by default.
func (e *Env) Enabled(key string) bool { return lenient(e, key, true, booleans, strconv.ParseBool) }

// Asked returns the value of a variable that is false by default.
func (e *Env) Asked(key string) bool { return lenient(e, key, false, booleans, strconv.ParseBool) }

// Cleared reports whether a variable is set to the empty string. Other values have no effect.
func (e *Env) Cleared(key string) bool {
	return e.Text(key, "") == "" && slices.Contains(e.names, key)
}

// Percent returns a percentage, 0 by default.
func (e *Env) Percent(key string) float64 {
	return lenient(e, key, 0, "a percentage from 0 to 100", parsePercentage)
}

// Number returns the number that a variable holds, or otherwise if it is not set.
func (e *Env) Number(key string, otherwise int) int {
	return lenient(e, key, otherwise, "a whole number", strconv.Atoi)
}

// Values that variables may have, for people.
const (
	booleans  = "true or false"
	durations = "a duration such as 12h"
)

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = strconv.ErrRange
	}
	return d, err
}

func parsePercentage(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && !(v >= 0 && v <= 100) {
		err = strconv.ErrRange
	}
	return v, err
}

// lenient returns the value of a variable, or otherwise if it is not set. An invalid value is ignored with a warning,
// which says what is allowed.
func lenient[T any](e *Env, key string, otherwise T, allowed string, parse func(string) (T, error)) T {
	v, ok := parsed(e, key, otherwise, parse)
	if !ok {
		e.Warn(fmt.Sprintf("%s=%q is not understood, and %v is used: write %s", key, e.Getenv(key), otherwise, allowed))
	}
	return v
}

// Warn adds a warning, once: several commands read a variable.
func (e *Env) Warn(text string) {
	if !slices.Contains(e.Warnings, text) {
		e.Warnings = append(e.Warnings, text)
	}
}

// strict is like lenient, but an invalid value keeps a server from starting, because otherwise may permit more than the
// value means.
func strict[T any](e *Env, key string, otherwise T, allowed string, parse func(string) (T, error)) T {
	v, ok := parsed(e, key, otherwise, parse)
	if !ok {
		text := fmt.Sprintf("%s=%q is not understood: write %s", key, e.Getenv(key), allowed)
		if !slices.Contains(e.Refused, text) { // several commands read the variable
			e.Refused = append(e.Refused, text)
		}
	}
	return v
}

// parsed returns the value of a variable. It returns otherwise if the variable is not set, and if its value is invalid,
// for which ok is false.
func parsed[T any](e *Env, key string, otherwise T, parse func(string) (T, error)) (value T, ok bool) {
	e.Read = append(e.Read, key)
	text := e.Getenv(key)
	if text == "" {
		return otherwise, true
	}
	if v, err := parse(text); err == nil {
		return v, true
	}
	return otherwise, false
}
