package schema

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	runtime "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

//go:embed schemas.zip
var archive []byte

// File is one entry of schemas.zip: the schemas of one kind. The entry's name is GROUP/KIND.json.
type File struct {
	Versions map[string]int    `json:"versions"` // index of each version's schema
	Schemas  []json.RawMessage `json:"schemas"`
}

// Set holds compiled definitions. The zero value is an empty Set.
type Set struct {
	mu       sync.Mutex
	compiled map[runtime.GroupVersionKind]*definition
}

// definition is the definition of one version of a kind. It is nil if there is none.
type definition struct {
	structural *structural.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// Check returns the faults of an object by the definition of its kind, or none if the kind has no definition. The
// object's whole numbers must be of type int64. Check sets the definition's defaults in the object.
func (s *Set) Check(gvk runtime.GroupVersionKind, object map[string]any) (field.ErrorList, error) {
	d, err := s.definition(gvk)
	if err != nil || d == nil {
		return nil, err
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.structural)
	defaulting.Default(object, d.structural)
	errs := validation.ValidateCustomResource(nil, object, d.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	if len(errs) > 0 {
		for _, e := range errs {
			name(e)
		}
		return errs, nil // rules may rely on types and required fields
	}
	errs, _ = d.rules.Validate(context.Background(), nil, d.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return errs, nil
}

// name moves the path of the field from an error's text to its Field. For alternatives the library puts the path only
// at the beginning of the text, and for numbers that are too large for their type only at the end.
func name(e *field.Error) {
	if e.Field != "" && e.Field != "<nil>" {
		return
	}
	rest, quoted := strings.CutPrefix(e.Detail, `"`)
	if path, why, ended := strings.Cut(rest, `" `); quoted && ended {
		e.Field, e.Detail = path, why
		return
	}
	e.Field = ""
	if at := strings.LastIndex(e.Detail, " in "); at >= 0 && !strings.Contains(e.Detail[at+len(" in "):], " ") {
		e.Field, e.Detail = e.Detail[at+len(" in "):], e.Detail[:at]
	}
}

// Forget drops the compiled definitions.
func (s *Set) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compiled = nil
}

func (s *Set) definition(gvk runtime.GroupVersionKind) (*definition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.compiled[gvk]; ok {
		return d, nil
	}
	d, err := compile(gvk)
	if err != nil {
		return nil, fmt.Errorf("compile the definition of %s: %w", gvk, err)
	}
	lists.Put(&s.compiled, gvk, d)
	return d, nil
}

func compile(gvk runtime.GroupVersionKind) (*definition, error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	entry := gvk.Group + "/" + gvk.Kind + ".json"
	if !slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == entry }) {
		return nil, nil
	}
	r, err := z.Open(entry)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var file File
	if err := json.NewDecoder(r).Decode(&file); err != nil {
		return nil, err
	}
	i, ok := file.Versions[gvk.Version]
	if !ok {
		return nil, nil
	}
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(file.Schemas[i], &props); err != nil {
		return nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		return nil, err
	}
	d := &definition{}
	if d.structural, err = structural.NewStructural(&internal); err != nil {
		return nil, err
	}
	if d.schema, _, err = validation.NewSchemaValidator(&internal); err != nil {
		return nil, err
	}
	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
	return d, nil
}
