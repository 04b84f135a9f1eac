package ui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// objectRow is one object of configuration, and the numbers of proxies that its resources were sent to.
type objectRow struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Position  string `json:"position,omitempty"`
	Proxies   int    `json:"proxies"` // proxies that were sent a resource made of it
	Current   int    `json:"current"` // proxies that have acknowledged the newest version of all of them
	Findings  int    `json:"findings,omitempty"`
	Severity  string `json:"severity,omitempty"` // worst severity of its findings
}

func (r objectRow) matches(text, namespace, state string) bool {
	switch state {
	case "behind":
		if r.Proxies == r.Current {
			return false
		}
	case "unused":
		if r.Proxies > 0 {
			return false
		}
	case "findings":
		if r.Findings == 0 {
			return false
		}
	}
	return (namespace == "" || r.Namespace == namespace) &&
		(text == "" || strings.Contains(strings.ToLower(r.Kind+" "+r.Namespace+"/"+r.Name), text))
}

// listed reports whether objects of a kind are listed: the kinds by which users configure the mesh.
func listed(k *kinds.Kind) bool {
	return k.Istio || k == kinds.Service || k.Group == kinds.HTTPRoute.Group
}

// makeObjects returns the rows of all objects.
func (u *UI) makeObjects() []objectRow {
	if u.origins == nil {
		u.origins = u.o.World.NewOrigins()
	}
	u.origins.Refresh()
	counts := u.count(u.o.Proxies.Holdings())
	findings, _ := u.findings.get(u.o.Now)
	worst := map[string]diag.Severity{}
	number := map[string]int{}
	for i := range findings {
		f := &findings[i]
		if number[f.Object]++; number[f.Object] == 1 || f.Severity > worst[f.Object] {
			worst[f.Object] = f.Severity
		}
	}
	var list []objectRow
	for _, o := range u.o.World.Objects() {
		if !listed(o.Kind) {
			continue
		}
		if from := u.o.World.Origin(o.Key); from != nil && from.Key != o.Key { // its origin is listed instead
			continue
		}
		n := counts[o.Key]
		r := objectRow{Kind: o.Kind.Name, Namespace: o.Namespace, Name: o.Name, Position: o.Position, Proxies: n.proxies, Current: n.current}
		if name := o.Key.String(); number[name] > 0 {
			r.Findings, r.Severity = number[name], worst[name].String()
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b objectRow) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return list
}

// dropOrigins drops the origins of Sets.
func (u *UI) dropOrigins() {
	u.objects.mu.Lock()
	defer u.objects.mu.Unlock()
	u.origins = nil
}

// taken is the number of proxies that were sent an object's resources, and of the ones that have acknowledged them.
type taken struct{ proxies, current int }

// alike is the key of proxies that were sent the same Sets and have acknowledged the same ones.
type alike struct {
	waiting bool
	sets    [maxHeld]heldSet
}

type heldSet struct {
	set    *envoy.Set
	synced bool
}

// maxHeld bounds the Sets of one proxy that are counted: two of each type.
const maxHeld = 20

// count counts the proxies of each object. Proxies of a cohort have the same Sets, so it looks up each Set once for all
// proxies that are alike.
func (u *UI) count(holdings []xds.Holding) map[kinds.Key]taken {
	groups := map[alike]int{}
	for i := range holdings {
		h := &holdings[i]
		a, n := alike{waiting: h.Waiting}, 0
		for _, t := range h.Types {
			for _, s := range []*envoy.Set{t.Union.Shared, t.Union.Own} {
				if s != nil && n < maxHeld {
					a.sets[n] = heldSet{s, t.Synced}
					n++
				}
			}
		}
		groups[a]++
	}
	out := map[kinds.Key]taken{}
	for a, n := range groups {
		current := map[kinds.Key]bool{}
		for _, s := range a.sets {
			for _, k := range u.origins.Of(s.set) {
				was, seen := current[k]
				current[k] = s.synced && !a.waiting && (was || !seen)
			}
		}
		counted := map[kinds.Key]bool{} // by origin, of which several objects may be derived
		for k, synced := range current {
			if o := u.o.World.Origin(k); o != nil {
				k = o.Key
			}
			was, seen := counted[k]
			counted[k] = synced && (was || !seen)
		}
		for k, synced := range counted {
			t := out[k]
			if t.proxies += n; synced {
				t.current += n
			}
			out[k] = t
		}
	}
	return out
}

func (u *UI) makeFindings() []diag.Diagnostic {
	list := slices.Clone(u.o.World.Findings())
	if list == nil {
		list = []diag.Diagnostic{}
	}
	slices.SortStableFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(
			cmp.Compare(b.Severity, a.Severity), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			strings.Compare(a.Object, b.Object),
		)
	})
	return list
}
