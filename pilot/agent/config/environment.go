package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/settings"
)

// environment holds variables by name. Values that cannot be parsed are collected as errors.
type environment struct {
	values map[string]string
	errs   []error
}

// newEnvironment returns an environment of variables in the form of os.Environ.
func newEnvironment(environ []string) *environment {
	e := &environment{values: map[string]string{}}
	for _, s := range environ {
		name, value, _ := strings.Cut(s, "=")
		e.values[name] = value
	}
	return e
}

// setDefaults adds variables that are not set.
func (e *environment) setDefaults(more map[string]string) {
	for name, value := range more {
		if _, ok := e.values[name]; !ok {
			e.values[name] = value
		}
	}
}

func (e *environment) text(name, fallback string) string {
	if v := e.values[name]; v != "" {
		return v
	}
	return fallback
}

func read[T any](e *environment, name string, fallback T, want string, parse func(string) (T, error)) T {
	text := e.values[name]
	if text == "" {
		return fallback
	}
	v, err := parse(text)
	if err != nil {
		e.errs = append(e.errs, fmt.Errorf("%s=%q: write %s", name, text, want))
		return fallback
	}
	return v
}

func (e *environment) flag(name string) bool {
	return read(e, name, false, "true or false", strconv.ParseBool)
}

func (e *environment) duration(name string, fallback time.Duration) time.Duration {
	return read(e, name, fallback, "a duration such as 30s", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err == nil && d < 0 {
			err = strconv.ErrRange
		}
		return d, err
	})
}

func (e *environment) number(name string, fallback int) int {
	return read(e, name, fallback, "a whole number", strconv.Atoi)
}

func (e *environment) port(name string, fallback uint16) uint16 {
	return read(e, name, fallback, "a port", func(text string) (uint16, error) {
		n, err := strconv.ParseUint(text, 10, 16)
		return uint16(n), err
	})
}

// ratio returns a number from 0 up to, but not including, 1.
func (e *environment) ratio(name string, fallback float64) float64 {
	return read(e, name, fallback, "a number from 0 to below 1", func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err == nil && (v < 0 || v >= 1) {
			err = strconv.ErrRange
		}
		return v, err
	})
}

// ineffective returns the variables of Istio's agent that are set and have no effect in this one, each with the reason.
func (e *environment) ineffective() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		s := settings.Find(settings.Agent(), name)
		if s != nil && (s.Effect == settings.Without || s.Effect == settings.AlwaysOn) && e.values[name] != "" && !s.IsDefault(e.values[name]) {
			list = append(list, name+": "+s.Why)
		}
	}
	if slices.Contains(strings.Split(e.values["WASM_INSECURE_REGISTRIES"], ","), "*") {
		list = append(list, "WASM_INSECURE_REGISTRIES: * is not supported: list each HOST:PORT")
	}
	return list
}

// headerName matches the names of headers that gRPC sends.
var headerName = regexp.MustCompile(`^[a-z0-9_.-]+$`)

// headers returns the headers that variables with a prefix name, such as XDS_HEADER_TENANT.
func (e *environment) headers(prefix string) map[string]string {
	found := map[string]string{}
	for _, variable := range slices.Sorted(maps.Keys(e.values)) {
		name, ok := strings.CutPrefix(variable, prefix)
		if !ok {
			continue
		}
		if name = strings.ToLower(name); !headerName.MatchString(name) || strings.HasPrefix(name, "grpc-") {
			e.errs = append(e.errs, fmt.Errorf("%s: write the name of a header of gRPC after %s", variable, prefix))
			continue
		}
		found[name] = e.values[variable]
	}
	return found
}
