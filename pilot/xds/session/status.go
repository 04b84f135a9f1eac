package session

import (
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Status returns the status of each type by URL.
func (s *Session) Status() map[string]TypeStatus {
	types := make(map[string]TypeStatus, len(s.watches))
	for _, w := range s.watches {
		st := w.shown()
		st.Wildcard, st.Names = w.wildcard, w.names.Len()
		types[w.kind.URL] = st
	}
	return types
}

// StatusOf returns the status of a type, which the owner of the stream updates, or nil if the client never requested
// it.
func (s *Session) StatusOf(typeURL string) *TypeStatus {
	if w := s.find(typeURL); w != nil {
		return &w.status
	}
	return nil
}

// failing reports whether the client lacks a resource because it rejected it. If a rejected resource is removed and
// comes back with the same version, it is not sent again, and the client lacks it again.
func (w *watch) failing() bool { return w.rejecting || w.withholds() }

// shown returns the status for introspection. It has the last error only while the client lacks a resource because of
// it.
func (w *watch) shown() TypeStatus {
	st := w.status
	if !w.failing() {
		st.LastError, st.LastErrorAt = "", time.Time{}
	}
	return st
}

// Resources returns the resources of a type that the client has, sorted by name, or nil.
func (s *Session) Resources(typeURL string) []*envoy.Resource {
	if w := s.find(typeURL); w != nil {
		return w.resources()
	}
	return nil
}

// Find returns a resource of a type that the client has and that fits, or nil.
func (s *Session) Find(typeURL string, fits func(*envoy.Resource) bool) *envoy.Resource {
	w := s.find(typeURL)
	if w == nil {
		return nil
	}
	for r := range w.held.All {
		if _, other := w.diverged[r.Name]; !other && (w.whole() || w.names.Has(r.Name)) && r.Size() > 0 && fits(r) {
			return r
		}
	}
	for _, r := range w.diverged {
		if r != nil && r.Size() > 0 && fits(r) {
			return r
		}
	}
	return nil
}
