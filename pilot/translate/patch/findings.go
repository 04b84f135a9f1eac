package patch

import (
	"weak"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
)

// Findings returns findings about the patches of the Sets that were requested since the last full Snapshot.
func (p *Patcher) Findings() []diag.Diagnostic {
	if p.feature == nil {
		return nil
	}
	var notes []feature.PatchNote
	add := func(r *envoy.Resource) {
		if r == nil {
			return
		}
		for _, n := range r.Notes {
			notes = append(notes, feature.PatchNote{Patch: feature.Patch{Object: n.Object, Index: n.Index}, Resource: r.Name, Reason: n.Reason})
		}
	}
	types := map[weak.Pointer[cohort.Patches]]map[string]bool{}
	p.cache.EachDerived(func(k engine.Key, set *envoy.Set, added []*envoy.Resource, removed map[string]*envoy.Resource) {
		lists.PutIn(types, k.Patches, k.Type, true)
		for r := range set.All {
			add(r)
			add(r.Header)
		}
		for _, r := range removed {
			add(r)
		}
		for _, r := range added {
			if add(r); !r.Removed() && set.Get(r.Name) != r {
				add(envoy.RemovedResource(r.Name, []envoy.Note{{Object: r.Notes[0].Object, Index: r.Notes[0].Index,
					Reason: "a resource of that name exists: change it with MERGE"}}))
			}
		}
	})
	var uses []feature.PatchUse
	for patches, made := range types {
		if s := patches.Value(); s != nil {
			uses = append(uses, feature.PatchUse{Selection: s.Selections.Of(p.feature), Gateway: s.Router, Types: made})
		}
	}
	return p.feature.Patches.Findings(uses, notes)
}
