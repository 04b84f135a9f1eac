package gatewayapi_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

// TestStatusesSettle: an object that has the status which it should have is left alone.
func TestStatusesSettle(t *testing.T) {
	files, err := filepath.Glob("testdata/istiod/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		should := map[string]map[string]any{}
		for _, s := range inspected(t, a.Files[0].Data).Statuses() {
			b, err := json.Marshal(timed(s.Value))
			if err != nil {
				t.Fatal(err)
			}
			should[s.Of.Kind.Name+" "+s.Of.Namespace+"/"+s.Of.Name] = decode(t, b)
		}
		if len(should) == 0 {
			t.Fatal("no statuses")
		}
		var written [][]byte
		for _, document := range bytes.Split(a.Files[0].Data, []byte("\n---\n")) {
			o := decode(t, document)
			if meta, is := o["metadata"].(map[string]any); is {
				ns, _ := meta["namespace"].(string)
				if status := should[o["kind"].(string)+" "+ns+"/"+meta["name"].(string)]; status != nil {
					o["status"] = status
				}
			}
			b, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, b)
		}
		settled := 0
		for _, s := range inspected(t, bytes.Join(written, []byte("---\n"))).Statuses() {
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
	}
}

// TestGenerations: each condition says that it is of the generation that its object has.
func TestGenerations(t *testing.T) {
	files, err := filepath.Glob("testdata/istiod/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, written := map[string]float64{}, [][]byte{}
		for i, document := range bytes.Split(a.Files[0].Data, []byte("\n---\n")) {
			o := decode(t, document)
			if meta, is := o["metadata"].(map[string]any); is {
				ns, _ := meta["namespace"].(string)
				want[o["kind"].(string)+" "+ns+"/"+meta["name"].(string)] = float64(i + 2)
				meta["generation"] = i + 2
			}
			b, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, b)
		}
		for _, s := range inspected(t, bytes.Join(written, []byte("---\n"))).Statuses() {
			object := s.Of.Kind.Name + " " + s.Of.Namespace + "/" + s.Of.Name
			for _, got := range generations(s.Value) {
				if seen++; got != want[object] {
					t.Errorf("%s: a condition of %s is of generation %v, want %v", file, object, got, want[object])
				}
			}
		}
	}
	if seen == 0 {
		t.Error("there are no conditions")
	}
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
