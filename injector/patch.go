package injector

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// difference returns the JSON patch from a text to a pod. before is the pod that the Go type decoded from the text.
func difference(text []byte, before map[string]any, pod *corev1.Pod) (*Result, error) {
	after, err := generic(pod)
	if err != nil {
		return nil, err
	}
	raw, err := decode(text)
	if err != nil {
		return nil, err
	}
	to := carry(raw, before, after).(map[string]any)
	out := append(make([]byte, 0, 8<<10), '[')
	for n, o := range patch("", raw, to) {
		if n > 0 {
			out = append(out, ',')
		}
		if out, err = o.append(out); err != nil {
			return nil, err
		}
	}
	return &Result{Pod: to, Patch: append(out, ']')}, nil
}

// operation is one operation of a JSON patch.
type operation struct {
	op, path string
	value    any // unused for remove
}

// append appends the operation as JSON.
func (o operation) append(text []byte) ([]byte, error) {
	text = append(text, `{"op":"`+o.op+`","path":`...)
	path, err := json.Marshal(o.path)
	text = append(text, path...)
	if o.op != "remove" && err == nil {
		var value []byte
		value, err = json.Marshal(o.value)
		text = append(append(text, `,"value":`...), value...)
	}
	return append(text, '}'), err
}

// patch returns the operations that change one JSON value into another.
func patch(path string, from, to any) []operation {
	if equal(from, to) { // the usual case, which needs no sorting and no paths
		return nil
	}
	switch from := from.(type) {
	case map[string]any:
		if to, ok := to.(map[string]any); ok {
			return patchMap(path, from, to)
		}
	case []any:
		if to, ok := to.([]any); ok && keepsNames(from, to) {
			return patchList(path, from, to)
		}
	}
	return []operation{{"replace", path, to}}
}

func patchMap(path string, from, to map[string]any) (ops []operation) {
	for _, k := range sortedKeys(from) {
		at := path + "/" + escape(k)
		if v, ok := to[k]; ok {
			ops = append(ops, patch(at, from[k], v)...)
		} else {
			ops = append(ops, operation{op: "remove", path: at})
		}
	}
	for _, k := range sortedKeys(to) {
		if _, ok := from[k]; !ok {
			ops = append(ops, operation{"add", path + "/" + escape(k), to[k]})
		}
	}
	return ops
}

// keepsNames reports whether a list has all entries of another by name and in the same order, possibly with further
// entries between them.
func keepsNames(from, to []any) bool {
	at := 0
	for _, v := range to {
		if at < len(from) && nameOf(v) != "" && nameOf(v) == nameOf(from[at]) {
			at++
		}
	}
	return at == len(from) && len(from) > 0
}

func patchList(path string, from, to []any) (ops []operation) {
	at := 0
	for i, v := range to {
		here := path + "/" + strconv.Itoa(i)
		if at < len(from) && nameOf(v) == nameOf(from[at]) {
			ops = append(ops, patch(here, from[at], v)...)
			at++
		} else {
			ops = append(ops, operation{"add", here, v})
		}
	}
	return ops
}

func nameOf(v any) string {
	m, _ := v.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// carry returns the JSON value after, which the Go type encoded after a change, with the fields that only the original
// text has, such as fields of a newer Kubernetes that the type does not know. before is what the type encoded before
// the change. carry may change after.
func carry(raw, before, after any) any {
	switch after := after.(type) {
	case map[string]any:
		raw, ok := raw.(map[string]any)
		if !ok {
			return after
		}
		before, _ := before.(map[string]any)
		for k, v := range after {
			switch v.(type) {
			case map[string]any, []any:
				after[k] = carry(raw[k], before[k], v)
			}
		}
		for k, v := range raw {
			_, known := before[k]
			if _, has := after[k]; !has && !known && v != nil {
				after[k] = v
			}
		}
	case []any:
		raw, _ := raw.([]any)
		before, _ := before.([]any)
		if len(raw) != len(before) {
			return after
		}
		at := make(map[string]int, len(before)) // index of the first entry with each name
		for j := range slices.Backward(before) {
			at[nameOf(before[j])] = j
		}
		for i, v := range after {
			if j, ok := at[nameOf(v)]; ok && nameOf(v) != "" {
				after[i] = carry(raw[j], before[j], v)
			}
		}
	}
	return after
}
