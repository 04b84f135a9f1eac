package yaml11

import (
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Truth returns the boolean that a word stands for, and whether it stands for one.
func Truth(word string) (value, ok bool) {
	switch word {
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y":
		return true, true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N":
		return false, true
	}
	return false, false
}

// Bool returns the boolean value of a scalar, and whether it has one.
func Bool(n *yaml.Node) (value, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" && (n.Tag != "!!str" || n.Style != 0) {
		return false, false
	}
	return Truth(n.Value)
}

// Value returns the value of a scalar: nil, a bool, an int, a uint64, a float64 or else a string. A timestamp is a
// string.
func Value(n *yaml.Node) (any, error) {
	if b, ok := Bool(n); ok {
		return b, nil
	}
	switch n.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		var v any
		err := n.Decode(&v)
		return v, err
	}
	return n.Value, nil
}

// Key returns the name of a field that a scalar stands for, and whether it is a valid name; null is not.
func Key(n *yaml.Node) (name string, ok bool) {
	if b, ok := Bool(n); ok {
		return strconv.FormatBool(b), true
	}
	switch n.ShortTag() {
	case "!!null":
		return "", false
	case "!!int", "!!float":
		switch v, err := Value(n); v := v.(type) {
		case int:
			return strconv.Itoa(v), err == nil
		case float64:
			// sigs.k8s.io/yaml writes numbers in this form, infinity and NaN included.
			text := strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 32), "+")
			switch text {
			case "Inf":
				text = ".inf"
			case "-Inf":
				text = "-.inf"
			case "NaN":
				text = ".nan"
			}
			return text, err == nil
		default: // an integer of more than 63 bits
			return "", false
		}
	}
	return n.Value, true
}
