package xds

import (
	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// stateOfTheWorld takes a request of a state-of-the-world stream. An error ends the stream: the client broke a limit.
//
// What a request subscribes to replaces what the requests before it did. A first request on the stream, and one without
// a nonce, is answered in full; one with the newest nonce is answered with the names that are new; any other answers a
// response that was overtaken and is not answered. That holds for rejections too: what a rejecting request asks for
// anew is sent, never what it rejects; but what is asked for by name and was rejected together is sent again in parts.
func (s *session) stateOfTheWorld(r *request) (verdict, error) {
	v := verdict{typeURL: r.typeURL}
	if err := s.check(r); err != nil {
		return v, err
	}
	w := s.find(r.typeURL)
	first := w == nil
	if first {
		w = s.open(r.typeURL)
	}
	s.resumed = s.resumed || first && r.resumes
	nonce, sent := r.nonce, w.status.Sent
	current := nonce != "" && nonce == sent
	switch {
	case r.detail != nil:
		v.kind, v.code, v.message = rejected, codes.Code(r.detail.GetCode()), r.detail.GetMessage()
		if d, ok := w.acknowledge(nonce); ok {
			s.rejectDelivery(w, d)
		}
	case current:
		if _, ok := w.acknowledge(nonce); ok {
			v.kind = acked
			w.status.Acked = nonce
		}
	}
	if nonce != "" && !current && sent != "" {
		if v.kind != rejected {
			v.kind = expired
		}
		s.release(w, r.names.names)
		return v, nil
	}
	return v, s.replace(w, r.names, first, first || !current && v.kind != rejected)
}

// release drops the names that a request without an answer does not list any more: a client that unsubscribes from a
// name and subscribes again before it sees the newest response has lost the resource, and no later request would show
// it.
func (s *session) release(w *watch, asked *envoy.Names) {
	if w.whole() || w.names == asked {
		return
	}
	left := s.interner.common(w.names, asked)
	w.names, s.names = left, s.names-w.names.Len()+left.Len()
	w.forgetUnnamed()
}

// replace sets what the client wants of a type. With anew, all of it is to be sent, else only what was not asked for
// before.
func (s *session) replace(w *watch, names requestNames, first, anew bool) error {
	was := w.wildcard
	switch {
	case !names.empty():
		w.wildcard, w.explicit = names.star, names.star
	case first:
		w.wildcard = w.complete || !w.kind.Named
	case w.explicit || !w.wildcard:
		w.wildcard, w.explicit = false, false
	}
	before, leaving := w.names, len(w.pendingRemoval)
	if err := s.want(w, names.names); err != nil {
		return err
	}
	var added []string
	if w.names != before {
		for _, name := range w.names.All() {
			if !before.Has(name) {
				added = append(added, name)
			}
		}
	}
	switch {
	case w.idle(), !w.complete && (anew || was != w.wildcard):
		w.reset()
	case w.whole():
		w.keepNamed()
		if anew || len(added) > 0 || was != w.wildcard {
			w.compare, w.answer = true, w.complete
		}
	default:
		w.forgetUnnamed()
		for _, name := range added {
			w.markResend(name)
		}
	}
	s.compareStayingEndpoints(w, leaving)
	return nil
}
