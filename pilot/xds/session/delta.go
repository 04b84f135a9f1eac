package session

import (
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// takeDelta handles a request of a delta stream.
//
// Requests change the subscription whatever their nonce. The nonce only identifies the acknowledged or rejected
// response. The first request for a type may have the versions that the client has from an earlier stream.
func (s *Session) takeDelta(w *watch, r *wire.Request, v *Verdict, first bool) error {
	if d, ok := s.takeAnswer(w, r, v); ok {
		s.clustersAnswered = s.clustersAnswered || w.kind.URL == envoy.ClusterType
		s.compareEndpointsOf(w, d)
	}
	switch {
	case first:
		return s.subscribeFirst(w, r)
	case r.Names.Empty() && r.Unsubscribed.Empty():
		return nil
	}
	return s.changeSubscription(w, r.Names, r.Unsubscribed)
}

// subscribeFirst handles the first request for a type on the stream.
func (s *Session) subscribeFirst(w *watch, r *wire.Request) error {
	// Resources of an unknown type could not be removed.
	resumes := !r.Versions.Empty() && (s.profile.Whole || w.kind.Known())
	w.explicit = r.Names.Star
	s.resumed = s.resumed || resumes
	w.wildcard = w.explicit || r.Names.Empty() && (w.complete || !w.kind.Named)
	if err := s.setNames(w, r.Names.Names); err != nil {
		return err
	}
	if resumes {
		s.takeInitial(w, r.Versions)
	}
	if w.whole() {
		for name := range w.names.Each() {
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
	w.mustAnswer, w.answerUnknown = w.compare && w.complete, w.compare
	return nil
}

// changeSubscription adds names to a subscription and removes others.
func (s *Session) changeSubscription(w *watch, add, remove wire.Names) error {
	whole, before, leaving := w.whole(), w.names, len(w.pendingRemoval)
	if err := s.setNames(w, s.interner.Edited(w.names, remove.Names, add.Names)); err != nil {
		return err
	}
	if remove.Star {
		w.wildcard, w.explicit = false, false
	}
	for name := range remove.Names.Each() {
		if before.Has(name) {
			if w.wildcard || add.Star {
				w.markResend(name) // the client cannot tell whether the wildcard includes it
				continue
			}
			delete(w.resend, name)
			delete(w.diverged, name)
			delete(w.pendingRemoval, name)
			// A client may request new names forever, so the state of old ones must be dropped.
			delete(w.rejected, name)
			w.compare = w.compare || w.hosts != nil // its virtual hosts are removed with it
		}
	}
	if add.Star && !w.wildcard {
		w.wildcard, w.compare, w.mustAnswer = true, true, w.complete
	}
	w.explicit = w.explicit || add.Star
	for name := range add.Names.Each() {
		w.markResend(name)
		// The client may have unsubscribed from the name and subscribed again. Then it also accepts a response that was
		// sent in between.
		if w.whole() || w.kind.Total {
			continue
		}
		if r := w.lastUnacknowledged(name); r != nil {
			w.diverge(name, r)
		}
	}
	switch {
	case whole != w.whole():
		w.reset()
		s.look(w)
	case whole:
		w.keepNamed()
	}
	s.compareStayingEndpoints(w, leaving)
	return nil
}
