package session

import (
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Subscribed returns the names of a type that the client subscribes to.
func (s *Session) Subscribed(typeURL string) *envoy.Names {
	if w := s.find(typeURL); w != nil {
		return w.names
	}
	return nil
}

// Guard has the client be sent no secret that is not granted.
func (s *Session) Guard() { s.guarded = true }

// Granted returns the secrets that the client may be sent of a session that is guarded, nil for none.
func (s *Session) Granted() *envoy.Names { return s.granted }

// Grant sets the secrets that the client may be sent, nil for none. With denied it is known that it may not have the
// others that it subscribes to: those that it has are replaced by stand-ins, because an Envoy keeps a secret that is
// removed. Otherwise they are removed.
func (s *Session) Grant(names *envoy.Names, denied bool) {
	w := s.find(envoy.SecretType)
	if w == nil {
		s.granted = names
		return
	}
	withdrawn := s.withdraw(w, names, denied)
	if s.granted == names && withdrawn == s.withdrawn {
		return
	}
	s.granted, s.withdrawn = names, withdrawn
	w.compare = w.compare || !w.idle()
}

// withdraw returns the stand-ins for the secrets that the client has and may not have any more. It returns those of
// before if they are the same.
func (s *Session) withdraw(w *watch, granted *envoy.Names, denied bool) *envoy.Set {
	var list []*envoy.Resource
	same := true
	for name := range w.names.Each() {
		stands := s.withdrawn.Get(name)
		switch {
		case granted != nil && granted.Has(name):
			same = same && stands == nil
			continue
		case stands == nil && denied && s.mayHave(w, name):
			if stands = s.observer.StandIn(name); stands != nil {
				same = false
			}
		}
		if stands != nil {
			list = append(list, stands)
		}
	}
	if same && len(list) == s.withdrawn.Len() {
		return s.withdrawn
	}
	return wire.SetOf(list)
}

// mayHave reports whether the client has a secret of a name. What a client of state of the world has of an earlier
// stream it does not say.
func (s *Session) mayHave(w *watch, name string) bool {
	return w.held.Get(name) != nil || w.diverged[name] != nil || w.lastUnacknowledged(name) != nil || !s.delta && s.resumed
}

// grantedOf returns those of some names that the client may be sent.
func (s *Session) grantedOf(names *envoy.Names) *envoy.Names {
	if !s.guarded || names == nil || names == s.granted {
		return names
	}
	var list []string
	for name := range names.Each() {
		if s.granted != nil && s.granted.Has(name) {
			list = append(list, name)
		}
	}
	return s.interner.Of(list)
}
