package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// environment holds variables by name. A value that cannot be read is an error that names it.
type environment struct {
	values map[string]string
	errs   []error
}

// newEnvironment takes variables in the form of os.Environ.
func newEnvironment(environ []string) *environment {
	e := &environment{values: map[string]string{}}
	for _, s := range environ {
		name, value, _ := strings.Cut(s, "=")
		e.values[name] = value
	}
	return e
}

// under adds variables that are not set.
func (e *environment) under(more map[string]string) {
	for name, value := range more {
		if _, ok := e.values[name]; !ok {
			e.values[name] = value
		}
	}
}

func (e *environment) text(name, otherwise string) string {
	if v := e.values[name]; v != "" {
		return v
	}
	return otherwise
}

func read[T any](e *environment, name string, otherwise T, want string, parse func(string) (T, error)) T {
	text := e.values[name]
	if text == "" {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		e.errs = append(e.errs, fmt.Errorf("%s=%q: write %s", name, text, want))
		return otherwise
	}
	return v
}

func (e *environment) flag(name string) bool {
	return read(e, name, false, "true or false", strconv.ParseBool)
}

func (e *environment) duration(name string, otherwise time.Duration) time.Duration {
	return read(e, name, otherwise, "a duration such as 30s", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err == nil && d < 0 {
			err = strconv.ErrRange
		}
		return d, err
	})
}

func (e *environment) number(name string, otherwise int) int {
	return read(e, name, otherwise, "a whole number", strconv.Atoi)
}

func (e *environment) port(name string, otherwise uint16) uint16 {
	return read(e, name, otherwise, "a port", func(text string) (uint16, error) {
		n, err := strconv.ParseUint(text, 10, 16)
		return uint16(n), err
	})
}

// ratio is from 0 to below 1.
func (e *environment) ratio(name string, otherwise float64) float64 {
	return read(e, name, otherwise, "a number from 0 to below 1", func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err == nil && (v < 0 || v >= 1) {
			err = strconv.ErrRange
		}
		return v, err
	})
}

// unused returns the variables of Istio's agent that have no effect here, each with the reason.
func (e *environment) unused() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		reason := map[string]string{
			"CREDENTIAL_FETCHER_TYPE": "tokens are files", "WASM_MODULE_EXPIRY": "modules are kept by number", "WASM_PURGE_INTERVAL": "modules are kept by number",
			"WASM_HTTP_REQUEST_TIMEOUT": "an extension says how long its module may take", "WASM_HTTP_REQUEST_MAX_RETRIES": "a module is asked for five times",
			"ENVOY_SECURE_METRICS_PORT": "no port serves metrics by mTLS", "ENVOY_SECURE_MERGED_METRICS_PORT": "no port serves metrics by mTLS",
			"PROXY_XDS_DEBUG_VIA_AGENT": "--debugAddr serves debug pages", "PROXY_XDS_DEBUG_VIA_AGENT_PORT": "--debugAddr serves debug pages",
		}[name]
		if strings.HasPrefix(name, "XDS_HEADER_") || strings.HasPrefix(name, "CA_HEADER_") {
			reason = "no headers are added"
		}
		if reason != "" && e.values[name] != "" {
			list = append(list, name+": "+reason)
		}
	}
	if slices.Contains(strings.Split(e.values["WASM_INSECURE_REGISTRIES"], ","), "*") {
		list = append(list, "WASM_INSECURE_REGISTRIES: *: name each HOST:PORT")
	}
	return list
}
