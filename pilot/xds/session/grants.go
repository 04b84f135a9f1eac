package session

import "github.com/istiod-lite/istiod-lite/pilot/envoy"

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

// Grant sets the secrets that the client may be sent, nil for none. What it has beside them is removed.
func (s *Session) Grant(names *envoy.Names) {
	if s.granted == names {
		return
	}
	s.granted = names
	for _, w := range s.watches {
		w.compare = w.compare || w.kind.Secret && !w.idle()
	}
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
