package patch

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// onePatch has one patch for each resource.
type onePatch struct {
	object *kinds.Object
	apply  func(m proto.Message) (proto.Message, []feature.PatchNote)
}

func (p onePatch) Of(feature.Selection, feature.PatchTarget) func(feature.PatchTarget) []feature.Patch {
	return func(feature.PatchTarget) []feature.Patch { return []feature.Patch{{Object: p.object}} }
}

func (p onePatch) Added(feature.Selection, feature.PatchTarget) []feature.Patch { return nil }

func (p onePatch) Apply(_ []feature.Patch, _ feature.PatchTarget, m proto.Message) (proto.Message, []feature.PatchNote) {
	return p.apply(m)
}

func (p onePatch) Findings([]feature.PatchUse, []feature.PatchNote) []diag.Diagnostic { return nil }

// TestMemoForgets: the memo forgets versions of a resource that nobody uses, also those that patches do not change,
// or fail for.
func TestMemoForgets(t *testing.T) {
	o := &kinds.Object{}
	for name, apply := range map[string]func(m proto.Message) (proto.Message, []feature.PatchNote){
		"unchanged": func(m proto.Message) (proto.Message, []feature.PatchNote) { return m, nil },
		"equal": func(m proto.Message) (proto.Message, []feature.PatchNote) {
			return m, []feature.PatchNote{{Patch: feature.Patch{Object: o}}}
		},
		"panic": func(proto.Message) (proto.Message, []feature.PatchNote) { panic("of a test") },
	} {
		p := New(envoy.NewMemo(1, nil), []*feature.Feature{{Hooks: feature.Hooks{Patches: onePatch{o, apply}}}}, nil, nil)
		of := target{Patcher: p, PatchTarget: feature.PatchTarget{Type: envoy.ClusterType}}.prepared()
		for i := range 100 {
			r := envoy.NewResource("c", &clusterv3.Cluster{Name: "c", AltStatName: fmt.Sprint(i)})
			if got := of.resource(r); got.Version != r.Version || name == "unchanged" && got != r {
				t.Fatalf("%s: a patch that changes nothing made %v", name, got)
			}
		}
		for end := time.Now().Add(2 * time.Minute); p.resources.Len() > 1 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			runtime.GC() // Cleanups run some time after a collection.
		}
		if n := p.resources.Len(); n > 1 {
			t.Errorf("%s: %d resources are kept of 100 that nobody uses", name, n)
		}
	}
}
