package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Parse parses YAML with any number of documents. A List is replaced by its items.
func Parse(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read YAML: %w", err)
		}
		json, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if string(json) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(json); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if !o.IsList() {
			objects = append(objects, o)
			continue
		}
		list, err := o.ToList()
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
}

// read reads a file, or all *.yaml below a folder.
func read(path string) ([]byte, error) {
	var all bytes.Buffer
	err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || (file != path && filepath.Ext(file) != ".yaml") {
			return err
		}
		b, err := os.ReadFile(file)
		all.WriteString("\n---\n")
		all.Write(b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	return all.Bytes(), nil
}
