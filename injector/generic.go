package injector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// generic returns a pod in JSON form. Whole numbers are of type int64.
func generic(pod *corev1.Pod) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	if s, ok := m["status"].(map[string]any); ok && len(s) == 0 {
		delete(m, "status")
	}
	if _, ok := m["metadata"].(map[string]any); !ok {
		m["metadata"] = map[string]any{}
	}
	return m, nil
}

// decode decodes JSON into the form of generic. Numbers that are not whole, or that an int64 would print differently,
// are of type json.Number.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return whole(v), nil
}

// whole replaces each json.Number that is a whole number by an int64.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			switch e.(type) {
			case map[string]any, []any:
				whole(e)
			case json.Number:
				v[k] = whole(e)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = whole(e)
		}
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && strconv.FormatInt(n, 10) == string(v) {
			return n
		}
	}
	return v
}

// equal reports whether two JSON values are equal.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if w, ok := b[k]; !ok || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// listEntries bounds each list of a pod, because merging two lists takes quadratic time.
const listEntries = 2000

// checkLists returns an error that names the first list that is too long, in the order of the field names, or nil.
func checkLists(path string, v any) error {
	if !hasLongList(v) {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			at := k
			if path != "" {
				at = path + "." + k
			}
			if err := checkLists(at, v[k]); err != nil {
				return err
			}
		}
	case []any:
		if len(v) > listEntries {
			return fmt.Errorf("%s has more than %d entries: put them elsewhere, such as into a ConfigMap", path, listEntries)
		}
		for i := range v {
			if err := checkLists(path+"["+strconv.Itoa(i)+"]", v[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasLongList reports whether a list in a JSON value is too long.
func hasLongList(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if hasLongList(e) {
				return true
			}
		}
	case []any:
		return len(v) > listEntries || slices.ContainsFunc(v, hasLongList)
	}
	return false
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
