package validation

import (
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// written is an object of the tree's samples and tests, as an API server sends it.
type written struct {
	kind *kinds.Kind
	text string
}

// everyObject returns all objects of Istio's kinds in testdata/agreement.txt, in the samples, and in the tests of
// openness and of fields.
func everyObject(t *testing.T) (all []written) {
	t.Helper()
	for _, a := range agreements(t) {
		all = append(all, written{kinds.Find(a.gvk.GroupVersion().String(), a.gvk.Kind), a.file})
	}
	for _, folder := range []string{"../../deploy/samples", "../../deploy/e2e/openness/testdata", "../../pilot/translate/testdata/fields"} {
		before := len(all)
		must.Succeed(t, filepath.WalkDir(folder, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for doc := range strings.SplitSeq("\n"+string(text), "\n---") {
				object, err := yaml.YAMLToJSON([]byte(doc))
				var named metav1.TypeMeta
				if err != nil || json.Unmarshal(object, &named) != nil {
					continue // a file that is meant to be broken
				}
				if k := kinds.Find(named.APIVersion, named.Kind); k != nil && k.Istio {
					all = append(all, written{k, string(object)})
				}
			}
			return nil
		}))
		if len(all) == before {
			t.Fatalf("no objects in %s", folder)
		}
	}
	return all
}

// oddValues are put in the place of other values, to see what protoSchema leaves to protojson.
var oddValues = []string{
	`-0`, `0`, `-1`, `1.5`, `1e3`, `1e400`, `2147483648`, `4294967295`, `4294967296`, `9223372036854775808`, `18446744073709551616`,
	`"1"`, `"-0"`, `"1e400"`, `"NaN"`, `"x"`, `""`, `"\ud800"`, `"YQ"`, `"YQ==\n"`, `"-0.1s"`, `"9000000000s"`,
	`"0001-01-01T00:00:00Z"`, `"0000-01-01T00:00:00Z"`, `null`, `true`, `[]`, `[null]`, `[[]]`, `{}`, `{"a":null}`, `{"a":1,"a":2}`,
	`{"-0":{},"1":{}}`, `{"a":{"b":[1e400]}}`,
}

// nodes returns all values of a tree.
func nodes(n *node) []*node {
	all := []*node{n}
	for _, item := range n.items {
		all = append(all, nodes(item)...)
	}
	for _, f := range n.fields {
		all = append(all, nodes(f.value)...)
	}
	return all
}

// disturb replaces a value of a tree by an odd one, or repeats a field.
func disturb(t *testing.T, r *rand.Rand, root *node) {
	t.Helper()
	all := nodes(root)
	n := all[r.IntN(len(all))]
	if len(n.fields) > 0 && r.IntN(4) == 0 {
		n.fields = append(n.fields, n.fields[r.IntN(len(n.fields))])
		return
	}
	odd, err := parseJSON([]byte(oddValues[r.IntN(len(oddValues))]), 100)
	must.Succeed(t, err)
	*n = *odd
}

// TestDoubt checks that a review misses nothing because it makes no message: protojson accepts every spec that
// protoSchema accepts without a doubt, and so does the strict decoder the metadata, as written and with odd values.
func TestDoubt(t *testing.T) {
	histories.NoRace(t)
	seed, _ := histories.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	judged, sure := 0, 0
	for _, w := range everyObject(t) {
		root, err := parseJSON([]byte(w.text), limits.Default().YAMLDepth)
		must.Succeed(t, err)
		for i := range 20 {
			spec, meta := root.get("spec").clone(), root.get("metadata").clone()
			if i > 0 {
				disturb(t, r, spec)
				disturb(t, r, meta)
			}
			text := string(spec.json())
			f, doubt, m := &findings{}, false, w.kind.New().(proto.Message)
			protoSchema{findings: f, lenient: true, admission: true, doubt: &doubt}.message(spec, m.ProtoReflect().Descriptor(), "spec")
			judged++
			if !f.failed() && !doubt {
				sure++
				if err := protojson.Unmarshal(spec.json(), m); err != nil {
					t.Errorf("%s %s: no doubt, but %v", w.kind.Name, clipped(text), err)
				}
			}
			meta.slim()
			f = &findings{}
			unsure := meta.slimMeta(f)
			strict, err := kjson.UnmarshalStrict(meta.json(), &metav1.ObjectMeta{})
			if wrong := err != nil || len(strict) > 0; wrong != f.failed() && !(wrong && unsure) {
				t.Errorf("metadata %s: %v, and %v %v", meta.json(), f.list, strict, err)
			}
		}
	}
	t.Logf("%d specs, %d of them accepted without a doubt", judged, sure)
}
