package gatewayapi_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/inspecttest"
)

// TestStatusesSettle: each condition says that it is of the generation that its object has, and an object that has the
// status which it should have is left alone.
func TestStatusesSettle(t *testing.T) {
	conditions := 0
	inspecttest.Each(t, 10, func(t *testing.T, file string, parts map[string][]byte) {
		var documents []map[string]any
		generation := map[string]float64{}
		for i, document := range bytes.Split(parts["objects.yaml"], []byte("\n---\n")) {
			o := decode(t, document)
			documents = append(documents, o)
			if meta, is := o["metadata"].(map[string]any); is {
				meta["generation"] = i + 2
				generation[documentName(o)] = float64(i + 2)
			}
		}
		should := map[string]map[string]any{}
		for _, s := range inspecttest.Read(t, written(t, documents), nil).Statuses() {
			name := s.Of.Kind.Name + " " + s.Of.Namespace + "/" + s.Of.Name
			for _, got := range generations(s.Value) {
				if conditions++; got != generation[name] {
					t.Errorf("%s: a condition of %s is of generation %v, want %v", file, name, got, generation[name])
				}
			}
			b, err := json.Marshal(timed(s.Value))
			must.Succeed(t, err)
			should[name] = decode(t, b)
		}
		if len(should) == 0 {
			t.Fatal("no statuses")
		}
		for _, o := range documents {
			if status := should[documentName(o)]; status != nil {
				o["status"] = status
			}
		}
		settled := 0
		for _, s := range inspecttest.Read(t, written(t, documents), nil).Statuses() {
			if should[s.Of.Kind.Name+" "+s.Of.Namespace+"/"+s.Of.Name] == nil {
				t.Errorf("%s: %s has a status only then", file, s.Of)
			}
			if settled++; !reflect.DeepEqual(s.Value, s.Current) {
				t.Errorf("%s: %s: is %v\nshould be %v", file, s.Of, s.Current, s.Value)
			}
		}
		if settled != len(should) {
			t.Errorf("%s: %d statuses, want %d", file, settled, len(should))
		}
	})
	if conditions == 0 {
		t.Error("there are no conditions")
	}
}

// documentName returns the kind, namespace and name of a document, "" if it is empty.
func documentName(o map[string]any) string {
	meta, is := o["metadata"].(map[string]any)
	if !is {
		return ""
	}
	ns, _ := meta["namespace"].(string)
	return o["kind"].(string) + " " + ns + "/" + meta["name"].(string)
}

// written returns documents as a file.
func written(t *testing.T, documents []map[string]any) []byte {
	t.Helper()
	var all [][]byte
	for _, o := range documents {
		b, err := yaml.Marshal(o)
		must.Succeed(t, err)
		all = append(all, b)
	}
	return bytes.Join(all, []byte("---\n"))
}

// generations returns the generations of all conditions of a status; 0 for one that says none.
func generations(v any) (list []any) {
	switch v := v.(type) {
	case map[string]any:
		if v["reason"] != nil && v["type"] != nil {
			g, _ := v["observedGeneration"].(float64)
			return []any{g}
		}
		for _, child := range v {
			list = append(list, generations(child)...)
		}
	case []any:
		for _, child := range v {
			list = append(list, generations(child)...)
		}
	}
	return list
}

// timed returns a value in which each condition has a time.
func timed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, child := range v {
			if out[k] = timed(child); k == "lastTransitionTime" && child == nil {
				out[k] = "2026-01-02T03:04:05Z"
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = timed(v[i])
		}
		return out
	}
	return v
}
