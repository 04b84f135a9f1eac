package validation

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// stored is a document as an API server hands it out.
func stored(t testing.TB, document string) []byte {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(document))
	must.Succeed(t, err)
	return text
}

func object(t testing.TB, k *kinds.Kind, document string) Document {
	t.Helper()
	return Object(limits.Default(), k, stored(t, document))
}

// custom are the kinds that Object is used for: core objects are not checked again.
func custom() []*kinds.Kind {
	var out []*kinds.Kind
	for _, k := range kinds.All() {
		if strings.Contains(k.Group, "istio") || strings.Contains(k.Group, "gateway") || k.IsMultiCluster() {
			out = append(out, k)
		}
	}
	return out
}

func TestObjectIsWhatAFileSays(t *testing.T) {
	for _, k := range custom() {
		text := document(k, mistakes()[k].body) + "status: {conditions: [{type: Other, status: \"True\"}], newer: 1}\n"
		want, got := decode(text).Documents[0], object(t, k, text)
		if want.Object == nil || got.Object == nil {
			t.Errorf("%s: not used: %v, %v", k.Name, want.Findings, got.Findings)
			continue
		}
		want.Object.Position = ""
		if d := cmp.Diff(want.Object, got.Object, protocmp.Transform(), cmp.Comparer(func(a, b *kinds.Kind) bool { return a == b })); d != "" {
			t.Errorf("%s (-file +stored):\n%s", k.Name, d)
		}
	}
}

func TestObjectKeepsItsMetadata(t *testing.T) {
	doc := object(t, kinds.Sidecar, `
metadata:
  name: a
  namespace: ns
  uid: u
  generation: 3
  resourceVersion: "7"
  creationTimestamp: "2024-01-02T03:04:05Z"
  labels: {l: "1"}
  annotations: {x: "y", kubectl.kubernetes.io/last-applied-configuration: "{}"}
  managedFields: [{manager: kubectl, fieldsV1: {"f:spec": {}}}]
spec: {outboundTrafficPolicy: {}}
`)
	want := &kinds.Object{
		Key: kinds.Key{Kind: kinds.Sidecar, Namespace: "ns", Name: "a"}, UID: "u",
		Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"x": "y"},
		Created: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	if doc.Object == nil {
		t.Fatal(doc.Findings)
	}
	want.Spec, want.Created = doc.Object.Spec, want.Created.Local()
	if !reflect.DeepEqual(want, doc.Object) {
		t.Errorf("got %+v, want %+v", doc.Object, want)
	}
}

// A newer release may have stored fields that this one does not know.
func TestObjectWithUnknownFields(t *testing.T) {
	for _, k := range custom() {
		m := mistakes()[k]
		var tree any
		must.Succeed(t, json.Unmarshal(stored(t, document(k, m.body)), &tree))
		if !addBeside(tree, m.right) {
			t.Fatalf("%s: the case has no field %s", k.Name, m.right)
		}
		text, err := json.Marshal(tree)
		must.Succeed(t, err)
		doc := Object(limits.Default(), k, text)
		var found []diag.Diagnostic
		for _, d := range doc.Findings {
			if d.Code == "UnknownField" {
				found = append(found, d)
			}
		}
		if len(found) != 1 || !strings.HasSuffix(found[0].Field, ".newerField") ||
			found[0].Line != 0 || found[0].File != "" || !strings.Contains(found[0].Object, k.Name) {
			t.Errorf("%s: findings %v", k.Name, doc.Findings)
			continue
		}
		if k.Security != (doc.Object == nil) || k.Security != (found[0].Severity == diag.Error) {
			t.Errorf("%s: used: %v, %v", k.Name, doc.Object != nil, found)
		}
	}
}

// addBeside puts a field that nobody knows beside the first field of that name.
func addBeside(tree any, name string) bool {
	switch v := tree.(type) {
	case map[string]any:
		if _, ok := v[name]; ok {
			v["newerField"] = map[string]any{"a": []any{1}}
			return true
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key != "metadata" && addBeside(v[key], name) {
				return true
			}
		}
	case []any:
		for _, sub := range v {
			if addBeside(sub, name) {
				return true
			}
		}
	}
	return false
}

func TestObjectThatCannotBeUsed(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	const badRegex = `{"metadata":{"name":"a","namespace":"b"},` +
		`"spec":{"hosts":["a"],"http":[{"match":[{"uri":{"regex":"("}}],"route":[{"destination":{"host":"a"}}]}]}}`
	for name, c := range map[string]struct{ text, field, code string }{
		"not JSON":      {`{"spec":`, "", "Syntax"},
		"not UTF-8":     {"{\"a\":\"\xff\"}", "", "Syntax"},
		"not an object": {`[1]`, "", "Syntax"},
		"too deep":      {`{"metadata":{"name":"a","namespace":"b"},"spec":` + deep + `}`, "", "Limit"},
		"too much":      {`{"metadata":{"name":"a","namespace":"b"},"spec":{"hosts":[` + strings.Repeat("1,", valueBudget) + `1]}}`, "", "Limit"},
		"no name": {`{"metadata":{"namespace":"b"},"spec":{"hosts":["a"],"http":[{"route":[{"destination":{"host":"a"}}]}]}}`,
			"metadata.name", "MissingField"},
		"wrong type":    {`{"metadata":{"name":"a","namespace":"b"},"spec":{"hosts":"a"}}`, "spec.hosts", "WrongType"},
		"wrong meaning": {badRegex, "spec.http[0].match[0].uri.regex", "IST0106"},
	} {
		doc := Object(limits.Default(), kinds.VirtualService, []byte(c.text))
		if doc.Object != nil || len(doc.Findings) == 0 || doc.Findings[0].Field != c.field ||
			doc.Findings[0].Code != c.code || doc.Findings[0].Line != 0 {
			t.Errorf("%s: %+v", name, doc)
		}
	}
}

func TestHealthOfWorkloadEntry(t *testing.T) {
	for _, c := range []struct{ status, want string }{
		{`{}`, ""},
		{`{conditions: []}`, ""},
		{`{conditions: [{type: Other, status: "False"}]}`, ""},
		{`{conditions: [{type: Other, status: "False"}, {type: Healthy, status: "True"}]}`, "true"},
		{`{conditions: [{type: Healthy, status: "False"}]}`, "false"},
		{`{conditions: [{type: Healthy, status: "Unknown"}]}`, ""},
		{`{conditions: 1}`, ""},
	} {
		text := document(kinds.WorkloadEntry, "spec: {address: 1.2.3.4}\nstatus: "+c.status+"\n")
		for from, doc := range map[string]Document{"file": decode(text).Documents[0], "stored": object(t, kinds.WorkloadEntry, text)} {
			if doc.Object == nil {
				t.Fatalf("%s: %s: %v", c.status, from, doc.Findings)
			}
			if got := doc.Object.Annotations[kinds.AnnotationHealthy]; got != c.want {
				t.Errorf("%s: %s: %q, want %q", c.status, from, got, c.want)
			}
		}
	}
}

// Whatever JSON says, the tree says: written out again it is the same value.
func TestJSONTree(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		plain := rapid.OneOf(
			rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny(),
			rapid.Int32().AsAny(), rapid.String().AsAny(), rapid.SampledFrom([]any{"", "\u2028", `"\`, "<&>"}),
		)
		if depth == 0 {
			return plain
		}
		return rapid.OneOf(plain, rapid.SliceOfN(value(depth-1), 0, 4).AsAny(), rapid.MapOfN(rapid.String(), value(depth-1), 0, 4).AsAny())
	}
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(value(3).Draw(t, "value"))
		must.Succeed(t, err)
		if rapid.Bool().Draw(t, "spaced") {
			var spaced strings.Builder
			e := json.NewEncoder(&spaced)
			e.SetIndent(" ", "\t")
			must.Succeed(t, e.Encode(json.RawMessage(text)))
			text = []byte(spaced.String())
		}
		n, err := parseJSON(text, 100)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var want, got any
		must.Succeed(t, json.Unmarshal(text, &want))
		if err := json.Unmarshal(n.json(), &got); err != nil {
			t.Fatalf("%s became %s: %v", text, n.json(), err)
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("%s became %s", text, n.json())
		}
	})
}

func FuzzObject(f *testing.F) {
	for _, k := range custom() {
		f.Add(uint8(len(k.Name)), stored(f, document(k, mistakes()[k].body)))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		list := custom()
		k := list[int(which)%len(list)]
		doc := Object(limits.Default(), k, data)
		if (doc.Object == nil) != HasErrors(doc.Findings) {
			t.Errorf("used: %v, findings %v", doc.Object != nil, doc.Findings)
		}
	})
}

func BenchmarkObject(b *testing.B) {
	text := stored(b, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: b, uid: 1234, generation: 1,
  managedFields: [{manager: kubectl, fieldsV1: {"f:spec": {"f:hosts": {}, "f:http": {}}}}]}
spec:
  hosts: [a]
  http:
  - match: [{uri: {prefix: /v2}}, {headers: {x: {exact: z}}}]
    route: [{destination: {host: a, subset: v1}, weight: 90}, {destination: {host: a, subset: v2}, weight: 10}]
    timeout: 5s
    retries: {attempts: 3, perTryTimeout: 2s}
  - route: [{destination: {host: a}}]
`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		Object(limits.Default(), kinds.VirtualService, text)
	}
}
