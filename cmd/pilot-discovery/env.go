package main

import (
	"fmt"
	"strconv"
	"time"
)

// env gives defaults of flags from the environment. What it cannot read it warns of and leaves out.
type env struct {
	getenv   func(string) string
	warnings []string
}

func (e *env) text(key, otherwise string) string {
	if v := e.getenv(key); v != "" {
		return v
	}
	return otherwise
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

// enabled tells what is on unless it says otherwise.
func (e *env) enabled(key string) bool {
	return parsed(e, key, true, strconv.ParseBool)
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
