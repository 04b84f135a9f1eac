package ingest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// outputs is the merged output of all stages.
type outputs struct {
	derived  map[kinds.Key]*claim         // derived objects in force
	hidden   map[kinds.Key][]*claim       // derived objects that another object with the same key hides
	statuses map[kinds.Key]*derive.Status // by object
	// changedStatuses has the objects whose status changed since the last takeStatuses. It is nil before the first
	// call.
	changedStatuses map[kinds.Key]bool
	shared          map[*derive.Part]struct{} // parts that share secrets
	sharedChanged   bool                      // shared has changed since the last sharedSecrets
}

func newOutputs() outputs {
	return outputs{
		derived: map[kinds.Key]*claim{}, hidden: map[kinds.Key][]*claim{}, statuses: map[kinds.Key]*derive.Status{},
		shared: map[*derive.Part]struct{}{},
	}
}

// claim is a derived object, and the part of a stage that made it.
type claim struct {
	derive.Derived
	stage    *stageRun
	part     any
	reported bool // a finding says that the object is hidden
}

// of reports whether a part of a stage has the claim.
func (c *claim) of(stage *stageRun, part any) bool { return c.stage == stage && c.part == part }

func (o *outputs) claimed(key kinds.Key) bool { return o.derived[key] != nil || o.hidden[key] != nil }

// note adds a key to claimed, with the derived object in force before a change.
func (o *outputs) note(key kinds.Key, claimed map[kinds.Key]*kinds.Object) {
	if _, noted := claimed[key]; noted {
		return
	}
	claimed[key] = nil
	if c := o.derived[key]; c != nil {
		claimed[key] = c.Object
	}
}

// drop removes the objects that a part no longer has, and adds their keys to claimed.
func (o *outputs) drop(stage *stageRun, part any, was, now *derive.Part, claimed map[kinds.Key]*kinds.Object) {
	if was == nil {
		return
	}
	has := objectsOf(now)
	for _, d := range was.Objects {
		if _, still := has[d.Object.Key]; !still {
			o.note(d.Object.Key, claimed)
			o.unclaim(stage, part, d.Object.Key)
		}
	}
	for _, s := range was.Statuses {
		if o.statuses[s.Of] == s {
			o.setStatus(s.Of, nil)
		}
	}
	if len(was.Shared) > 0 {
		delete(o.shared, was)
		o.sharedChanged = o.sharedChanged || now == nil || !slices.Equal(was.Shared, now.Shared)
	}
}

// add adds the objects of a part. Call it after drop.
func (o *outputs) add(stage *stageRun, part any, was, now *derive.Part, claimed map[kinds.Key]*kinds.Object) {
	had := objectsOf(was)
	for _, d := range now.Objects {
		if had[d.Object.Key] == d {
			continue
		}
		key := d.Object.Key
		o.note(key, claimed)
		if c := o.claimOf(stage, part, key); c == nil {
			o.hidden[key] = append(o.hidden[key], &claim{Derived: d, stage: stage, part: part})
		} else if c.Origin = d.Origin; c.Object != d.Object && !config.Equal(c.Object, d.Object) { // an equal object keeps its pointer
			c.Object = d.Object
		}
	}
	for _, s := range now.Statuses {
		o.setStatus(s.Of, s)
	}
	if len(now.Shared) > 0 {
		o.shared[now] = struct{}{}
		o.sharedChanged = o.sharedChanged || was == nil || !slices.Equal(was.Shared, now.Shared)
	}
}

// setStatus sets the wanted status of an object. A nil status removes it.
func (o *outputs) setStatus(of kinds.Key, s *derive.Status) {
	if o.statuses[of] = s; s == nil {
		delete(o.statuses, of)
	}
	if o.changedStatuses != nil {
		o.changedStatuses[of] = true
	}
}

func objectsOf(p *derive.Part) map[kinds.Key]derive.Derived {
	if p == nil || len(p.Objects) == 0 {
		return nil
	}
	all := make(map[kinds.Key]derive.Derived, len(p.Objects))
	for _, d := range p.Objects {
		all[d.Object.Key] = d
	}
	return all
}

// claimOf returns the claim of a part to a key, or nil.
func (o *outputs) claimOf(stage *stageRun, part any, key kinds.Key) *claim {
	if c := o.derived[key]; c != nil && c.of(stage, part) {
		return c
	}
	for _, c := range o.hidden[key] {
		if c.of(stage, part) {
			return c
		}
	}
	return nil
}

func (o *outputs) unclaim(stage *stageRun, part any, key kinds.Key) {
	if c := o.derived[key]; c != nil && c.of(stage, part) {
		delete(o.derived, key)
		return
	}
	o.hide(key, slices.DeleteFunc(o.hidden[key], func(c *claim) bool { return c.of(stage, part) }))
}

func (o *outputs) hide(key kinds.Key, list []*claim) {
	if len(list) == 0 {
		delete(o.hidden, key)
	} else {
		o.hidden[key] = list
	}
}

// settle selects the derived object in force for a key: none if a source has an object with that key, else the one of
// the first stage. It returns that object, or nil, and a finding for each object that became hidden.
func (o *outputs) settle(key kinds.Key, source bool) (counts *kinds.Object, found []diag.Diagnostic) {
	all := o.hidden[key]
	if c := o.derived[key]; c != nil {
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.stage.number, b.stage.number), cmp.Compare(a.Origin.String(), b.Origin.String()))
	})
	if source || len(all) == 0 {
		delete(o.derived, key)
	} else {
		o.derived[key], counts = all[0], all[0].Object
		all[0].reported = false
		all = all[1:]
	}
	o.hide(key, all)
	for _, c := range all {
		if !c.reported {
			c.reported = true
			found = append(found, c.hiddenObject())
		}
	}
	return counts, found
}

func (o *outputs) hiddenFindings() (list []diag.Diagnostic) {
	for _, claims := range o.hidden {
		for _, c := range claims {
			list = append(list, c.hiddenObject())
		}
	}
	return list
}

func (c *claim) hiddenObject() diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "HiddenObject", Object: c.Origin.String(),
		Message: "the " + c.Object.String() + " that " + c.stage.Name + " makes of it has no effect: another object has that name",
		Fix:     "rename the other object",
	}
}

// sharedSecrets returns the secrets that proxies may be sent because derived objects name them. It reports false if
// they have not changed since the last call.
func (o *outputs) sharedSecrets() (list []kinds.SharedSecret, changed bool) {
	if changed, o.sharedChanged = o.sharedChanged, false; !changed {
		return nil, false
	}
	for p := range o.shared {
		list = append(list, p.Shared...)
	}
	return list, true
}

// takeStatuses returns the statuses that have changed since the last call. The first call returns all of them.
func (o *outputs) takeStatuses() map[kinds.Key]*derive.Status {
	last := o.changedStatuses
	o.changedStatuses = map[kinds.Key]bool{}
	if last == nil {
		return maps.Clone(o.statuses)
	}
	changed := make(map[kinds.Key]*derive.Status, len(last))
	for key := range last {
		changed[key] = o.statuses[key]
	}
	return changed
}
