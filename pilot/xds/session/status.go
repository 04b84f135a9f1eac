package session

import (
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Status returns what the stream knows of each type, by URL.
func (s *Session) Status() map[string]TypeStatus {
	types := make(map[string]TypeStatus, len(s.watches))
	for _, w := range s.watches {
		st := w.shown()
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

// failing reports whether the client lacks a resource that it should have because it rejected it. A resource that the
// client rejected may go and come again in the same version: then it is not sent again, and the client lacks it again.
func (w *watch) failing() bool { return w.rejecting || w.withholds() }

// shown returns the status for introspection: with the last error if the client lacks something because of an error.
func (w *watch) shown() TypeStatus {
	st := w.status
	if !w.failing() {
		st.LastError, st.LastErrorAt = "", time.Time{}
	}
	return st
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
	Synced bool        // it has acknowledged the last response, and lacks nothing that it rejected
	Union  envoy.Union // of what it subscribes to by name, this may hold more
}

// Held returns what the client was last sent of each type that it was sent anything of.
func (s *Session) Held() []Held {
	list := make([]Held, 0, len(s.watches))
	for _, w := range s.watches {
		if w.status.Sent != "" && !w.initial {
			list = append(list, Held{w.kind, w.status.Sent == w.status.Acked && !w.failing(), w.held})
		}
	}
	return list
}
