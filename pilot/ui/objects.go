package ui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// objectRow is one object of configuration, and whether its newest version is in force at the proxies of this replica.
type objectRow struct {
	ID        string         `json:"id"` // KIND.GROUP/NAME.NAMESPACE
	Kind      string         `json:"kind"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name"`
	Cluster   string         `json:"cluster,omitempty"` // remote cluster that has it
	Position  string         `json:"position,omitempty"`
	State     progress.State `json:"state"`
	Why       string         `json:"why,omitempty"`
	Proxies   int            `json:"proxies,omitempty"` // proxies that it concerns; missing if all have it
	InForce   int            `json:"inForce,omitempty"` // of them, proxies that have it
	Findings  int            `json:"findings,omitempty"`
	Severity  string         `json:"severity,omitempty"` // worst severity of its findings
}

func (r objectRow) matches(text, namespace, state string) bool {
	switch state {
	case "behind":
		if r.State == progress.InForce || r.State == progress.WithoutEffect {
			return false
		}
	case "unused":
		if r.State != progress.WithoutEffect {
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
	findings, _ := u.findings.get(u.o.Now)
	worst := map[string]diag.Severity{}
	number := map[string]int{}
	for i := range findings {
		f := &findings[i]
		if number[f.Object]++; number[f.Object] == 1 || f.Severity > worst[f.Object] {
			worst[f.Object] = f.Severity
		}
	}
	var objects []*kinds.Object
	var keys []kinds.Key
	for _, o := range u.o.World.Objects() {
		if !listed(o.Kind) {
			continue
		}
		if from := u.o.World.Origin(o.Key); from != nil && from.Key != o.Key { // its origin is listed instead
			continue
		}
		objects, keys = append(objects, o), append(keys, o.Key)
	}
	list := make([]objectRow, len(objects))
	for i, b := range u.o.Progress.Briefs(keys) {
		o := objects[i]
		r := objectRow{
			ID: progress.Name(o.Key), Kind: o.Kind.Name, Namespace: o.Namespace, Name: o.Name, Cluster: o.Cluster, Position: o.Position,
			State: b.State, Why: b.Why,
		}
		if b.State != progress.InForce {
			r.Proxies, r.InForce = b.Proxies.Concerned, b.Proxies.InForce
		}
		if name := o.Key.String(); number[name] > 0 {
			r.Findings, r.Severity = number[name], worst[name].String()
		}
		list[i] = r
	}
	slices.SortFunc(list, func(a, b objectRow) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return list
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
