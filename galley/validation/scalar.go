package validation

import (
	"math"
	"strconv"
	"strings"
)

// asBool tells whether n is a boolean. What YAML 1.1, which kubectl reads, takes for one is made one.
func asBool(n *node) bool {
	if n.shape == text && n.plain {
		switch strings.ToLower(n.value) {
		case "yes", "on", "y":
			n.shape, n.value = boolean, "true"
		case "no", "off", "n":
			n.shape, n.value = boolean, "false"
		}
	}
	return n.shape == boolean
}

// asInt says why n is not a whole number in the range, or "". A quoted number counts, since JSON writes 64-bit numbers so.
func asInt(n *node, low, high float64) string {
	if n.shape != number && (n.shape != text || n.plain) {
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

// asFloat tells whether n is a number, in the forms that protojson reads.
func asFloat(n *node) bool {
	switch n.shape {
	case number:
		return true
	case text:
		switch n.value {
		case "NaN", "Infinity", "-Infinity":
			return true
		}
		_, err := strconv.ParseFloat(n.value, 64)
		return err == nil && !n.plain
	}
	return false
}

// quoted shows a short value in a message, or else its type.
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

// quoteFix is the advice for what should be a string: a scalar needs quotes.
func quoteFix(n *node) string {
	if n.shape == number || n.shape == boolean {
		return `quote it: "` + n.value + `"`
	}
	return "write a string"
}
