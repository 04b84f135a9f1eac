package session

import (
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Subscription is a type and the names that a stream subscribes to.
type Subscription struct {
	TypeURL string
	Names   *envoy.Names // nil for all
}

// MaxTypes bounds the types of a subscriber group. A stream with more checks each push itself.
const MaxTypes = 12

// Key identifies streams that are sent the same resources, except for a proxy's own.
type Key struct {
	Cohort        cohort.Key             // cohort.Key.Shared
	Subscriptions [MaxTypes]Subscription // in the order of types; unused ones are zero
}

// Key returns the key of the stream's group. It returns false if the stream must check each push itself.
func (s *Session) Key() (Key, bool) {
	var k Key
	if !s.profile.Grouped || s.cohortFailed || s.cohort == (cohort.Key{}) {
		return k, false
	}
	k.Cohort = s.cohort.Shared()
	n := 0
	for _, w := range s.watches {
		if w.idle() || w.kind.Part { // virtual hosts follow the route configurations
			continue
		}
		if n == MaxTypes {
			return k, false
		}
		k.Subscriptions[n] = Subscription{TypeURL: w.kind.URL, Names: s.namesOf(w)}
		if !w.whole() {
			k.Subscriptions[n].Names = w.names
			if w.kind.Secret {
				k.Subscriptions[n].Names = s.grantedOf(w.names)
			}
		}
		n++
	}
	return k, true
}
