package xds

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
)

// stateOfTheWorld takes a request of a state-of-the-world stream. An error ends the stream: the client broke a limit.
//
// What a request subscribes to replaces what the requests before it did. A first request on the stream, and one without a nonce, is answered in full; one
// with the newest nonce is answered with the names that are new; any other answers a response that was overtaken and is not answered. That holds for rejections
// too: what a rejecting request asks for anew is sent, never what it rejects; but what is asked for by name and was rejected together is sent again in parts.
func (s *session) stateOfTheWorld(r *discoveryv3.DiscoveryRequest) (verdict, error) {
	v := verdict{typeURL: r.GetTypeUrl()}
	if err := s.check(r.GetTypeUrl(), r.GetResourceNames()); err != nil {
		return v, err
	}
	w := s.find(r.GetTypeUrl())
	first := w == nil
	if first {
		w = s.open(r.GetTypeUrl())
	}
	s.resumed = s.resumed || first && r.GetVersionInfo() != ""
	nonce, sent := r.GetResponseNonce(), w.status.Sent
	current := nonce != "" && nonce == sent
	switch detail := r.GetErrorDetail(); {
	case detail != nil:
		v.kind, v.code, v.message = rejected, codes.Code(detail.GetCode()), detail.GetMessage()
		if d, ok := w.settle(nonce); ok {
			s.refuse(w, d)
		}
	case current:
		if _, ok := w.settle(nonce); ok {
			v.kind = acked
			w.status.Acked = nonce
		}
	}
	if nonce != "" && !current && sent != "" {
		if v.kind != rejected {
			v.kind = expired
		}
		s.release(w, r.GetResourceNames())
		return v, nil
	}
	return v, s.replace(w, r.GetResourceNames(), first, first || !current && v.kind != rejected)
}

// release drops the names that a request which is not answered has no more: a client that lets go of a name and wants it back before it sees the newest
// response has lost what it had of it, and no later request would tell.
func (s *session) release(w *watch, names []string) {
	if w.whole() || w.names == nil || slices.Equal(names, w.names.All()) {
		return
	}
	asked := s.lists.of(names)
	var gone []string
	for _, name := range w.names.All() {
		if !asked.Has(name) {
			gone = append(gone, name)
		}
	}
	w.names, s.names = s.lists.edited(w.names, gone, nil), s.names-len(gone)
	w.drop()
}

// replace sets what the client wants of a type. With anew, all of it is to be sent, else only what was not asked for before.
func (s *session) replace(w *watch, names []string, first, anew bool) error {
	was := w.wildcard
	switch {
	case len(names) > 0:
		w.wildcard = slices.Contains(names, star)
		w.explicit = w.wildcard
	case first:
		w.wildcard = w.complete || !isNamed(w.typeURL)
	case w.explicit || !w.wildcard:
		w.wildcard, w.explicit = false, false
	}
	before := w.names
	if !slices.Equal(names, before.All()) {
		if err := s.want(w, s.lists.of(names)); err != nil {
			return err
		}
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
		w.narrow()
		if anew || len(added) > 0 || was != w.wildcard {
			w.compare, w.answer = true, w.complete
		}
	default:
		w.drop()
		for _, name := range added {
			w.repeat(name)
		}
	}
	return nil
}
