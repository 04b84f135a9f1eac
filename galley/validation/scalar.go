package validation

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/yaml11"
)

// asBool reports whether n is a boolean. It replaces a word of YAML 1.1, such as yes, by true or false.
func asBool(n *node) bool {
	if n.shape == boolean {
		n.value = jsonBool(n.value)
	}
	return n.shape == boolean
}

// jsonBool returns the token of JSON for a boolean of YAML 1.1.
func jsonBool(word string) string {
	value, _ := yaml11.Truth(word)
	return strconv.FormatBool(value)
}

// asInt returns why n is not a whole number in the range, or "".
func asInt(n *node, low, high float64) string {
	if n.shape != number {
		return "expected a whole number"
	}
	v, err := strconv.ParseFloat(n.value, 64)
	if err != nil || v != math.Trunc(v) {
		return "expected a whole number"
	}
	if v < low || v > high {
		return "expected a whole number from " + strconv.FormatFloat(low, 'f', -1, 64) + " to " + strconv.FormatFloat(high, 'f', -1, 64)
	}
	return ""
}

// unquote turns a quoted number into a number, and reports whether it did. protojson writes and reads 64-bit numbers
// with quotes.
func unquote(n *node) bool {
	_, err := strconv.ParseFloat(n.value, 64)
	quoted := err == nil && n.shape == text && !n.plain && json.Valid([]byte(n.value))
	if quoted {
		n.shape = number
	}
	return quoted
}

// numberFix is the fix for a value that must be a number.
func numberFix(n *node, what string) string {
	if _, err := strconv.ParseFloat(n.value, 64); err == nil && n.shape == text && !n.plain {
		return "remove the quotes: " + n.value
	}
	return "write " + what
}

// beyondJSON reports whether n is one of the numbers without a JSON token, in the form that protojson writes.
func beyondJSON(n *node) bool {
	return n.shape == text && slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, n.value)
}

// quoted returns a short value for a message, or else its type.
func quoted(n *node) string {
	switch {
	case n.overflows():
		return n.describe()
	case n.shape == text && len(n.value) <= 64:
		return strconv.Quote(n.value)
	case n.shape == number || n.shape == boolean:
		return n.shape.String() + " (" + n.value + ")"
	}
	return n.describe()
}

// ofClaims is the end of a fix for a boolean that a policy compares with a claim of a token.
func ofClaims(n *node, path string) string {
	if n.shape == boolean && strings.Contains(path, ".when[") {
		return ", and note that a claim that is a boolean matches no text"
	}
	return ""
}

// quoteFix is the fix for a value that must be a string: a scalar needs quotes.
func quoteFix(n *node) string {
	if n.shape == number || n.shape == boolean {
		return `quote it: "` + n.value + `"`
	}
	return "write a string"
}
