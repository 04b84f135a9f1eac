package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const chart = "../../charts/base/files/crds"

// The committed files are what the generator makes of the module that go.mod pins.
func TestChartIsUpToDate(t *testing.T) {
	source, version, err := module(t.Context())
	must.Succeed(t, err)
	want, err := generate(source, version)
	must.Succeed(t, err)
	entries, err := os.ReadDir(chart)
	must.Succeed(t, err)
	for _, e := range entries {
		if want[e.Name()] == nil {
			t.Errorf("%s is of no kind of istio.io/api %s: run make gen", e.Name(), version)
		}
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(chart, name)); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is not what the generator makes of istio.io/api %s (%v): run make gen", name, version, err)
		}
	}
}

// The archive that validation embeds is up to date.
func TestSchemasAreUpToDate(t *testing.T) {
	want, err := schemas(t.Context())
	must.Succeed(t, err)
	if got, err := os.ReadFile("../../galley/validation/schema/schemas.zip"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("schemas.zip is not what the generator makes (%v): run make gen", err)
	}
}

// The definitions, as Kubernetes decodes them, equal the originals without descriptions.
func TestOnlyProseIsLeftOut(t *testing.T) {
	source, version, err := module(t.Context())
	must.Succeed(t, err)
	files, err := generate(source, version)
	must.Succeed(t, err)
	rules, prose := 0, 0
	for doc := range strings.SplitSeq(string(source), "\n---\n") {
		want := read(t, []byte(doc))
		got := read(t, files[want.Name+".yaml"])
		for i := range want.Spec.Versions {
			for j := range want.Spec.Versions[i].AdditionalPrinterColumns {
				want.Spec.Versions[i].AdditionalPrinterColumns[j].Description = ""
			}
			walk(want.Spec.Versions[i].Schema.OpenAPIV3Schema, func(s *v1.JSONSchemaProps) {
				rules += len(s.XValidations)
				if s.Description != "" {
					prose++
				}
				s.Description = ""
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", want.Name, diff)
		}
		if got.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s would go with the release, and every object of its kind with it", got.Name)
		}
	}
	if rules == 0 || prose == 0 {
		t.Errorf("%d rules, %d descriptions: the walk saw nothing", rules, prose)
	}
}

// A property may have the name description, and rules may refer to it.
func TestPropertyCalledDescription(t *testing.T) {
	files, err := generate([]byte(`
kind: CustomResourceDefinition
metadata: {name: a.b}
spec:
  versions:
    - schema:
        openAPIV3Schema:
          description: prose
          properties:
            description: {type: string, description: prose}
          x-kubernetes-validations: [{rule: self.description != "", message: "needs a description"}]
`), "v0")
	must.Succeed(t, err)
	text := string(files["a.b.yaml"])
	if strings.Contains(text, "prose") || !strings.Contains(text, "description: {type: string}") ||
		!strings.Contains(text, `message: "needs a description"`) {
		t.Error(text)
	}
}

func read(t *testing.T, text []byte) *v1.CustomResourceDefinition {
	t.Helper()
	crd := &v1.CustomResourceDefinition{}
	must.Succeed(t, yaml.UnmarshalStrict(text, crd))
	return crd
}

func walk(s *v1.JSONSchemaProps, visit func(*v1.JSONSchemaProps)) {
	if s == nil {
		return
	}
	visit(s)
	for name, p := range s.Properties {
		walk(&p, visit)
		s.Properties[name] = p
	}
	if s.Items != nil {
		walk(s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil {
		walk(s.AdditionalProperties.Schema, visit)
	}
	walk(s.Not, visit)
	for _, list := range [][]v1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			walk(&list[i], visit)
		}
	}
}
