package inspect

import (
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// Change is a change of an object that a server has pushed.
type Change struct {
	Push   uint64    `json:"push"`
	Time   time.Time `json:"time"`
	Object string    `json:"object"` // Kind namespace/name
	Where  string    `json:"where,omitempty"`
	Gone   bool      `json:"gone,omitempty"`
	OnWay  bool      `json:"onWay,omitempty"` // whether the object decides the request now
}

// maxChanges bounds the changes that are listed.
const maxChanges = 10

// concern says which objects may concern a request.
type concern struct {
	objects    map[string]bool // the objects that decide it now, as Kind namespace/name
	slices     map[string]bool // prefixes of EndpointSlices of its services, as namespace/name-
	namespaces map[string]bool
}

// concernOf returns the objects that may concern the request of a line.
func (i *Inspection) concernOf(w *Way) concern {
	c := concern{map[string]bool{}, map[string]bool{}, map[string]bool{i.Snapshot.RootNamespace(): true}}
	add := func(objects []kinds.Key) {
		for _, k := range objects {
			c.objects[k.String()] = true
		}
	}
	answer := func(a *trace.Answer) {
		if a == nil {
			return
		}
		for _, s := range a.Steps {
			add(s.Objects)
			for _, lost := range s.Lost {
				add(lost.Objects)
			}
		}
		for _, t := range a.Targets {
			for s := range i.Snapshot.ServicesByHost(t.Cluster[strings.LastIndexByte(t.Cluster, '|')+1:]) {
				c.objects[keyOf(s).String()] = true
				c.slices[s.Namespace+"/"+s.Name+"-"] = true
				c.namespaces[s.Namespace] = true
			}
		}
	}
	workload := func(name string) {
		if at := strings.LastIndexByte(name, '.'); at > 0 {
			c.namespaces[name[at+1:]] = true
			c.objects["Pod "+name[at+1:]+"/"+name[:at]] = true
		}
	}
	var arrivals func([]Arrival)
	arrivals = func(list []Arrival) {
		for _, a := range list {
			answer(a.Answer)
			workload(a.Pod)
			add(a.policies)
			arrivals(a.Next)
		}
	}
	answer(w.Outbound)
	arrivals(w.Arrivals)
	workload(w.Log.Source)
	workload(w.Log.Of)
	if from := trace.PolicyOrigin(w.Log.Policy()); from.Path != "" {
		c.objects[policyKey(from).String()] = true
	}
	return c
}

// decides reports whether an object decides the request now.
func (c concern) decides(o pushes.Object) bool {
	if o.Kind == kinds.EndpointSlice.Name {
		for prefix := range c.slices {
			if strings.HasPrefix(o.Namespace+"/"+o.Name, prefix) {
				return true
			}
		}
	}
	return c.objects[o.String()]
}

// touches reports whether an object may have decided the request before: it is of Istio or the Gateway API, or a
// Service, in one of the namespaces of the request.
func (c concern) touches(o pushes.Object) bool {
	return c.namespaces[o.Namespace] && (o.Kind == kinds.Service.Name || slices.ContainsFunc(kinds.All(), func(k *kinds.Kind) bool {
		return k.Name == o.Kind && (k.Istio || k.IsGatewayAPI())
	}))
}

// changed lists the changes of a server that explain a line, or that came after it.
func (i *Inspection) changed(page pushes.Page, w *Way) {
	l, c := w.Log, i.concernOf(w)
	const load = 1 // ID of the first push, which has all objects
	for _, p := range slices.Backward(page.Pushes) {
		if p.ID == load {
			break
		}
		for _, o := range p.Causes {
			if l.gone != "" && o.Gone && o.Kind == kinds.Pod.Name && o.Name == l.gone {
				l.note("%s is gone since push %d at %s", o, p.ID, p.Time.UTC().Format(time.RFC3339))
			}
		}
		after := p.Time.After(l.Time)
		if !l.Time.IsZero() && after == l.Explained {
			continue
		}
		for _, o := range p.Causes {
			decides := c.decides(o)
			if (decides || !l.Explained && c.touches(o)) && len(l.Changes) < maxChanges {
				l.Changes = append(l.Changes, Change{p.ID, p.Time, o.String(), o.Position, o.Gone, decides})
			}
		}
	}
	slices.Reverse(l.Changes)
	switch {
	case len(page.Pushes) == 0:
	case l.Time.IsZero():
		l.note("the line has no time, so that its place among the changes is not known")
	case page.Pushes[0].Time.After(l.Time):
		l.note("the server remembers changes since %s, and the line is older", page.Pushes[0].Time.UTC().Format(time.RFC3339))
	case len(l.Changes) == 0 && l.Explained:
		l.note("none of what decides the request has changed between %s and the line", page.Pushes[0].Time.UTC().Format(time.RFC3339))
	}
}
