package session

import "github.com/istiod-lite/istiod-lite/pilot/envoy"

// Status returns what the stream knows of each type, by URL.
func (s *Session) Status() map[string]TypeStatus {
	types := make(map[string]TypeStatus, len(s.watches))
	for _, w := range s.watches {
		st := w.status
		st.Wildcard, st.Names = w.wildcard, w.names.Len()
		types[w.kind.URL] = st
	}
	return types
}

// StatusOf returns what the stream knows of a type, to be kept up to date by its owner, or nil if the client never
// asked for it.
func (s *Session) StatusOf(typeURL string) *TypeStatus {
	if w := s.find(typeURL); w != nil {
		return &w.status
	}
	return nil
}

// Withholds reports whether the client has rejected a resource of a type that it should have: it is not sent again as
// it is, whatever else the client acknowledges.
func (s *Session) Withholds(typeURL string) bool {
	w := s.find(typeURL)
	return w != nil && w.withholds()
}

// Resources returns what the client has of a type, by name, or nil.
func (s *Session) Resources(typeURL string) []*envoy.Resource {
	if w := s.find(typeURL); w != nil {
		return w.resources()
	}
	return nil
}

// Held is what the client was last sent of one type.
type Held struct {
	Type   *envoy.Type
	Synced bool        // it has acknowledged the last response, and rejected none since
	Union  envoy.Union // of what it subscribes to by name, this may hold more
}

// Held returns what the client was last sent of each type that it was sent anything of.
func (s *Session) Held() []Held {
	list := make([]Held, 0, len(s.watches))
	for _, w := range s.watches {
		if w.status.Sent != "" && !w.initial {
			list = append(list, Held{w.kind, w.status.Sent == w.status.Acked && w.status.LastError == "", w.held})
		}
	}
	return list
}
