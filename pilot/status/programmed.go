package status

import (
	"context"
	"maps"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// programmed is the type of the condition that a Gateway, a ListenerSet or a listener is in force.
const programmed = "Programmed"

// awaitedGateway is a version of a Gateway or a ListenerSet that is not in force.
type awaitedGateway struct {
	generation int64
	since      time.Time // of the first look at it
}

// hold returns the status that is to be written for an object, and the time until the next look at it, or 0. A Gateway
// or a ListenerSet is not Programmed before its generation is in force. If it was, it stays Programmed, because a proxy
// that connects again is no news. The value is nil if nothing is to be written yet.
func (r *Derived) hold(ctx context.Context, s *derive.Status, o *kinds.Object) (value map[string]any, again time.Duration) {
	key := s.Of
	if r.progress == nil || key.Kind != kinds.KubeGateway && key.Kind != kinds.ListenerSet || o.Generation == 0 ||
		conditionOf(s.Value, programmed)["status"] != isTrue || isProgrammed(s.Current, o.Generation) {
		delete(r.awaited, key)
		return s.Value, 0
	}
	x := r.awaited[key]
	if x.generation != o.Generation {
		x = awaitedGateway{o.Generation, time.Now()}
		r.awaited[key] = x
	}
	again = pauseOf(x.since, len(r.awaited))
	a := r.progress.Own(progress.Question{Key: key})
	if a.State.Final() {
		a = r.progress.Ask(ctx, progress.Question{Key: key, Generation: o.Generation, UID: o.UID})
	}
	reason, message := "Pending", a.Numbers()
	switch a.State {
	case progress.InForce, progress.WithoutEffect:
		delete(r.awaited, key)
		return s.Value, 0
	case progress.Superseded: // a newer version follows
		return nil, again
	case progress.Rejected:
		reason, message = "Invalid", rejections(&a)
	case progress.Invalid:
		reason, message = "Invalid", a.Why
	default:
		if time.Since(x.since) < patience {
			return nil, again
		}
	}
	return unprogrammed(s.Value, s.Current, reason, message), again
}

// isProgrammed reports whether a status says that a generation is in force.
func isProgrammed(status map[string]any, of int64) bool {
	c := conditionOf(status, programmed)
	return c["status"] == isTrue && exact(c[generation]) == of
}

// unprogrammed returns a copy of a status in which neither the object nor a listener is Programmed. current is the
// status that the object has.
func unprogrammed(value, current map[string]any, reason, message string) map[string]any {
	out := maps.Clone(value)
	out[conditions] = withheld(value, current, reason, message)
	const listeners = "listeners"
	var all []any
	for _, l := range list(value, listeners) {
		m, _ := l.(map[string]any)
		var before map[string]any
		for _, c := range list(current, listeners) {
			if c, ok := c.(map[string]any); ok && c["name"] == m["name"] {
				before = c
			}
		}
		m = maps.Clone(m)
		m[conditions] = withheld(m, before, reason, message)
		all = append(all, m)
	}
	if all != nil {
		out[listeners] = all
	}
	return out
}

// withheld returns conditions of which Programmed is not True.
func withheld(value, current map[string]any, reason, message string) (all []any) {
	for _, c := range list(value, conditions) {
		if m, ok := c.(map[string]any); ok && m["type"] == programmed && m["status"] == isTrue {
			m = maps.Clone(m)
			m["status"], m["reason"], m["message"], m[transitionTime] = isFalse, reason, message, nil
			if before := conditionOf(current, programmed); before["status"] == isFalse {
				m[transitionTime] = before[transitionTime]
			}
			c = m
		}
		all = append(all, c)
	}
	return all
}
