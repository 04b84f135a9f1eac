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
