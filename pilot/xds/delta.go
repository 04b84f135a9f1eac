package xds

import (
	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// incremental takes a request of a delta stream. An error ends the stream: the client broke a limit.
//
// Requests add to and take from the subscription whatever nonce they carry; the nonce only says which response is
// acknowledged or rejected. The first request for a type may name the versions that the client has from an earlier
// stream.
func (s *session) incremental(r *request) (verdict, error) {
	v := verdict{typeURL: r.typeURL}
	if err := s.check(r); err != nil {
		return v, err
	}
	w := s.find(r.typeURL)
	first := w == nil
	if first {
		w = s.open(r.typeURL)
	}
	switch {
	case r.detail != nil:
		v.kind, v.code, v.message = rejected, codes.Code(r.detail.GetCode()), r.detail.GetMessage()
		if d, ok := w.acknowledge(r.nonce); ok {
			s.rejectDelivery(w, d)
			s.compareEndpointsOf(w, d)
		}
	case r.nonce != "":
		if d, ok := w.acknowledge(r.nonce); ok {
			v.kind = acked
			w.status.Acked = r.nonce
			s.compareEndpointsOf(w, d)
		}
	}
	if first {
		return v, s.begin(w, r)
	}
	return v, s.alter(w, r.names, r.unsubscribed)
}

// begin takes the first request for a type on the stream.
func (s *session) begin(w *watch, r *request) error {
	// of a type that nobody knows there is nothing to remove
	resumes := !r.versions.empty() && (s.profile.whole || w.kind.Known())
	w.explicit = r.names.star
	s.resumed = s.resumed || resumes
	w.wildcard = w.explicit || r.names.empty() && (w.complete || !w.kind.Named)
	if err := s.want(w, r.names.names); err != nil {
		return err
	}
	if resumes {
		s.takeInitial(w, r.versions)
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
func (s *session) alter(w *watch, add, remove requestNames) error {
	whole, before, leaving := w.whole(), w.names, len(w.pendingRemoval)
	if err := s.want(w, s.interner.edited(w.names, remove.names, add.names)); err != nil {
		return err
	}
	if remove.star {
		w.wildcard, w.explicit = false, false
	}
	for _, name := range remove.names.All() {
		if before.Has(name) {
			if w.wildcard || add.star {
				w.markResend(name) // the client cannot tell whether the wildcard has it too
				continue
			}
			delete(w.resend, name)
			delete(w.diverged, name)
			delete(w.pendingRemoval, name)
			// A client may ask for ever other names.
			delete(w.rejected, name)
			w.compare = w.compare || w.kind.URL == envoy.RouteType && w.hosts != nil // its virtual hosts go with it
		}
	}
	if add.star && !w.wildcard {
		w.wildcard, w.compare, w.answer = true, true, w.complete
	}
	w.explicit = w.explicit || add.star
	for _, name := range add.names.All() {
		w.markResend(name)
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
