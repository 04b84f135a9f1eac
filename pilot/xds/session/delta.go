package session

import (
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// incremental takes a request of a delta stream.
//
// Requests add to and take from the subscription whatever nonce they carry; the nonce only says which response is
// acknowledged or rejected. The first request for a type may name the versions that the client has from an earlier
// stream.
func (s *Session) incremental(w *watch, r *wire.Request, v *Verdict, first bool) error {
	if d, ok := s.answered(w, r, v); ok {
		s.compareEndpointsOf(w, d)
	}
	if first {
		return s.begin(w, r)
	}
	return s.alter(w, r.Names, r.Unsubscribed)
}

// begin takes the first request for a type on the stream.
func (s *Session) begin(w *watch, r *wire.Request) error {
	// of a type that nobody knows there is nothing to remove
	resumes := !r.Versions.Empty() && (s.profile.Whole || w.kind.Known())
	w.explicit = r.Names.Star
	s.resumed = s.resumed || resumes
	w.wildcard = w.explicit || r.Names.Empty() && (w.complete || !w.kind.Named)
	if err := s.want(w, r.Names.Names); err != nil {
		return err
	}
	if resumes {
		s.takeInitial(w, r.Versions)
	}
	if w.whole() {
		for _, name := range w.names.All() {
			if w.held.Get(name) == nil {
				w.markResend(name)
			}
		}
		w.keepNamed()
	}
	switch w.kind.URL {
	case envoy.ClusterType:
		s.resuming = resumes
		if s.resuming && s.find(envoy.EndpointType) == nil {
			s.changedClusters = map[string]struct{}{}
		}
	case envoy.EndpointType:
		s.changedClusters = nil
	}
	w.compare = !w.idle()
	w.answer = w.compare && w.complete
	return nil
}

// alter adds to and takes from a subscription.
func (s *Session) alter(w *watch, add, remove wire.Names) error {
	whole, before, leaving := w.whole(), w.names, len(w.pendingRemoval)
	if err := s.want(w, s.interner.Edited(w.names, remove.Names, add.Names)); err != nil {
		return err
	}
	if remove.Star {
		w.wildcard, w.explicit = false, false
	}
	for _, name := range remove.Names.All() {
		if before.Has(name) {
			if w.wildcard || add.Star {
				w.markResend(name) // the client cannot tell whether the wildcard has it too
				continue
			}
			delete(w.resend, name)
			delete(w.diverged, name)
			delete(w.pendingRemoval, name)
			// A client may ask for ever other names.
			delete(w.rejected, name)
			w.compare = w.compare || w.hosts != nil // its virtual hosts go with it
		}
	}
	if add.Star && !w.wildcard {
		w.wildcard, w.compare, w.answer = true, true, w.complete
	}
	w.explicit = w.explicit || add.Star
	for _, name := range add.Names.All() {
		w.markResend(name)
		// A client that takes back a name, which it had let go of, also takes what comes of it meanwhile.
		if w.whole() || w.kind.Total {
			continue
		}
		if r := w.underWay(name); r != nil {
			w.diverge(name, r)
		}
	}
	switch {
	case whole != w.whole():
		w.reset()
	case whole:
		w.keepNamed()
	}
	s.compareStayingEndpoints(w, leaving)
	return nil
}
