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

// Guard restricts the session to granted secrets.
func (s *Session) Guard() { s.guarded = true }

// Granted returns the secrets that a guarded session may send, or nil if there are none.
func (s *Session) Granted() *envoy.Names { return s.granted }

// Grant sets the secrets that a guarded session may send. Nil means none. If denied is true, the client must not have
// the other secrets: the ones that it has are replaced by stand-ins, because an Envoy keeps a secret that is removed.
// Otherwise they are removed. If undecided is true, the client may be granted the other secrets soon.
func (s *Session) Grant(names *envoy.Names, denied, undecided bool) {
	s.undecided = undecided
	defer s.settle()
	w := s.find(envoy.SecretType)
	if s.judged = s.Subscribed(envoy.SecretType); w == nil {
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

// withdraw returns the stand-ins for the secrets that the client has and must not have. It returns the current ones if
// they are the same.
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

// mayHave reports whether the client may have a secret. A state-of-the-world client does not tell its resources of an
// earlier stream.
func (s *Session) mayHave(w *watch, name string) bool {
	return w.held.Get(name) != nil || w.diverged[name] != nil || w.lastUnacknowledged(name) != nil || !s.delta && s.resumed
}

// grantedOf returns the names that may be sent.
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
