package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/galley/validation/schema"
)

// writeSchemas writes the schemas of all kinds to an archive.
func writeSchemas(ctx context.Context, path string) error {
	text, err := schemas(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// schemas returns a zip archive with a schema.File for each kind of Istio's API, of the Gateway API's standard channel,
// of the Multi-Cluster Services API, and for XBackendTrafficPolicy.
func schemas(ctx context.Context) ([]byte, error) {
	source, _, err := module(ctx)
	if err != nil {
		return nil, err
	}
	texts := [][]byte{source}
	for _, in := range [][]string{
		{"sigs.k8s.io/gateway-api", "standard/*.yaml"}, {"sigs.k8s.io/gateway-api", "experimental/*_xbackendtrafficpolicies.yaml"},
		{"sigs.k8s.io/mcs-api", "*.yaml"},
	} {
		_, dir, err := locate(ctx, in[0])
		if err != nil {
			return nil, err
		}
		paths, err := filepath.Glob(filepath.Join(dir, "config", "crd", in[1]))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, text := range texts {
		if err := addSchemas(z, text); err != nil {
			return nil, err
		}
	}
	err = z.Close()
	return out.Bytes(), err
}

// addSchemas adds the CustomResourceDefinitions of a YAML text.
func addSchemas(z *zip.Writer, text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the definitions: %w", err)
		}
		crd := doc.Content[0]
		if kind := at(crd, "kind"); kind == nil || kind.Value != "CustomResourceDefinition" {
			continue
		}
		file := schema.File{Versions: map[string]int{}}
		for _, v := range elements(at(at(crd, "spec"), "versions")) {
			node := at(at(v, "schema"), "openAPIV3Schema")
			strip(node)
			var value any
			if err := node.Decode(&value); err != nil {
				return err
			}
			text, err := json.Marshal(value)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(file.Schemas, func(s json.RawMessage) bool { return bytes.Equal(s, text) })
			if i < 0 {
				i = len(file.Schemas)
				file.Schemas = append(file.Schemas, text)
			}
			file.Versions[at(v, "name").Value] = i
		}
		w, err := z.Create(at(at(crd, "spec"), "group").Value + "/" + at(at(at(crd, "spec"), "names"), "kind").Value + ".json")
		if err != nil {
			return err
		}
		if err := json.NewEncoder(w).Encode(file); err != nil {
			return err
		}
	}
}
