package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crds DIR ZIP")
		os.Exit(2)
	}
	ctx := context.Background()
	if err := errors.Join(run(ctx, os.Args[1]), writeSchemas(ctx, os.Args[2])); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

// run writes the files of the pinned module to dir, and removes the files of kinds that the module no longer has.
func run(ctx context.Context, dir string) error {
	source, version, err := module(ctx)
	if err != nil {
		return err
	}
	files, err := generate(source, version)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if files[filepath.Base(path)] == nil {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// module returns the definitions of the istio.io/api module that go.mod pins, and its version.
func module(ctx context.Context) (text []byte, version string, err error) {
	version, dir, err := locate(ctx, "istio.io/api")
	if err != nil {
		return nil, "", err
	}
	text, err = os.ReadFile(filepath.Join(dir, "kubernetes", "customresourcedefinitions.gen.yaml"))
	return text, version, err
}

// locate returns the version of a module that go.mod pins, and its folder.
func locate(ctx context.Context, name string) (version, dir string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", name).Output()
	if err != nil {
		return "", "", fmt.Errorf("find the module %s: %w", name, err)
	}
	version, dir, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return version, dir, nil
}

const header = `# Made by "make gen" from the module istio.io/api %s; not to be edited.
# The definition is Copyright Istio Authors, under the Apache License 2.0 (http://www.apache.org/licenses/LICENSE-2.0).
# Changed from the original: descriptions and comments are left out.
`

// generate returns the files by name, one for each document of source.
func generate(source []byte, version string) (map[string][]byte, error) {
	files := map[string][]byte{}
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the definitions: %w", err)
		}
		crd := doc.Content[0]
		name := at(at(crd, "metadata"), "name")
		if kind := at(crd, "kind"); name == nil || kind == nil || kind.Value != "CustomResourceDefinition" {
			return nil, fmt.Errorf("line %d: not a CustomResourceDefinition", doc.Line)
		}
		uncomment(&doc)
		for _, v := range elements(at(at(crd, "spec"), "versions")) {
			for _, column := range elements(at(v, "additionalPrinterColumns")) {
				remove(column, "description")
			}
			strip(at(at(v, "schema"), "openAPIV3Schema"))
		}
		var out bytes.Buffer
		fmt.Fprintf(&out, header, version)
		encoder := yaml.NewEncoder(&out)
		encoder.SetIndent(2)
		if err := encoder.Encode(&doc); err != nil {
			return nil, fmt.Errorf("write %s: %w", name.Value, err)
		}
		files[name.Value+".yaml"] = out.Bytes()
	}
}

// strip removes the descriptions of a schema and of the schemas in it. A property with the name description stays.
func strip(schema *yaml.Node) {
	if schema == nil || schema.Kind != yaml.MappingNode {
		return
	}
	remove(schema, "description")
	for i := 0; i+1 < len(schema.Content); i += 2 {
		switch value := schema.Content[i+1]; schema.Content[i].Value {
		case "properties":
			for j := 1; j < len(value.Content); j += 2 {
				strip(value.Content[j])
			}
		case "items", "additionalProperties", "not":
			strip(value)
		case "allOf", "anyOf", "oneOf":
			for _, s := range value.Content {
				strip(s)
			}
		}
	}
}

func at(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func elements(list *yaml.Node) []*yaml.Node {
	if list == nil {
		return nil
	}
	return list.Content
}

func remove(mapping *yaml.Node, key string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = append(mapping.Content[:i], mapping.Content[i+2:]...)
			return
		}
	}
}

func uncomment(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for _, c := range n.Content {
		uncomment(c)
	}
}
