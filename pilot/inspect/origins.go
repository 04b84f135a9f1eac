package inspect

import (
	"cmp"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

func keysOf(places []place) []kinds.Key {
	return lists.Map(places, func(p place) kinds.Key { return p.Key })
}

// named adds the objects to the steps of an answer of a proxy that was sent a configuration. It adds to the reason what
// is wrong with a rule, if its route answers by itself or has no destination.
func (i *Inspection) named(a *trace.Answer, sent trace.Config) {
	var rule []place // of the route
	for n := range a.Steps {
		s := &a.Steps[n]
		places := i.placesOf(s.Origin, sent)
		if text := cmp.Or(i.wheres(places), s.Origin.Path); text != "" {
			s.From, s.Objects = text, keysOf(places)
		}
		if s.What == "route" {
			rule = places
		}
		if a.Answered && s.Origin.Route.GetDirectResponse() != nil || a.Cause == accesslog.NoCluster && s.Name == names.UnknownService {
			if wrong := i.faultIn(rule); wrong != "" {
				a.Reason += ": " + wrong
			}
		}
		for m := range s.Lost {
			l := &s.Lost[m]
			places := i.placesOf(l.Origin, sent)
			l.From, l.Objects = cmp.Or(i.wheres(places), l.Origin.Path), keysOf(places)
		}
	}
}

// placesOf returns the places that a decision comes from, of which one is meant. It returns nil if no object is known.
func (i *Inspection) placesOf(from trace.Origin, sent trace.Config) []place {
	if rules := i.rulesOf(from, sent); len(rules) > 0 {
		return rules
	}
	if rules := i.chainOrigin(from); len(rules) > 0 {
		return rules
	}
	return i.sourceOf(from)
}

// Origin returns the object and its rule that a decision comes from, or "" if no object is named.
func (i *Inspection) Origin(from trace.Origin) string {
	return cmp.Or(i.wheres(i.sourceOf(from)), from.Path)
}

// sourceOf returns the object, and its field, of an origin. It returns nil if the object is not known.
func (i *Inspection) sourceOf(from trace.Origin) []place {
	k := i.key(from)
	if k.Kind == nil {
		return nil
	}
	if o := i.world.Origin(k); o != nil && o.Key != k {
		return []place{{o.Key, ""}}
	}
	return []place{{k, from.Field}}
}

// key returns the key of the object that a decision comes from, or a zero key if it is not known.
func (i *Inspection) key(from trace.Origin) kinds.Key {
	if i.paths == nil {
		i.paths = map[string]kinds.Key{}
		for _, o := range i.world.Objects() {
			if o.Kind.Istio {
				i.paths[o.Path()] = o.Key
			}
		}
	}
	return i.paths[from.Path]
}
