package charts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// schemaLocation is the pattern of the files of writeSchemas, for kubeconform.
func schemaLocation(dir string) string {
	return filepath.Join(dir, "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json")
}

// writeSchemas writes, for every kind that an API server knows, custom resources too, the JSON schema that its OpenAPI
// document has, closed to fields that it does not name.
func writeSchemas(ctx context.Context, client kubernetes.Interface, dir string) error {
	get := func(path string, v any) error {
		text, err := client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
		if err != nil {
			return fmt.Errorf("get %s: %w", path, err)
		}
		return json.Unmarshal(text, v)
	}
	var index struct{ Paths map[string]any }
	if err := get("/openapi/v3", &index); err != nil {
		return err
	}
	for path := range index.Paths {
		var doc struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := get("/openapi/v3/"+path, &doc); err != nil {
			return err
		}
		for _, s := range doc.Components.Schemas {
			closed(s)
		}
		for name, s := range doc.Components.Schemas {
			list, _ := s["x-kubernetes-group-version-kind"].([]any)
			if len(list) != 1 { // one of meta, which every group has
				continue
			}
			gvk := list[0].(map[string]any)
			group := gvk["group"].(string)
			if group == "" {
				group = gvk["version"].(string) // as kubeconform has it
			}
			text, err := json.Marshal(map[string]any{"$ref": "#/components/schemas/" + name, "components": doc.Components})
			if err != nil {
				return err
			}
			file := fmt.Sprintf("%s_%s_%s.json", group, gvk["version"], strings.ToLower(gvk["kind"].(string)))
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// closed forbids unknown fields in a schema, at all depths. The branches of anyOf and the like only add to the schema
// itself.
func closed(s map[string]any) {
	properties, _ := s["properties"].(map[string]any)
	_, open := s["additionalProperties"]
	if properties != nil && !open && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	for _, p := range properties {
		closed(p.(map[string]any))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := s[key].(map[string]any); ok {
			closed(below)
		}
	}
}
