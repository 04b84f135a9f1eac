package session

import (
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// takeStateOfTheWorld handles a request of a state-of-the-world stream.
//
// A request replaces the subscription. The first request on the stream, and one without a nonce, gets all resources. A
// request with the newest nonce gets the resources of new names. Any other request is stale and gets no response. The
// same holds for rejections: new names in a rejection get a response, and rejected resources are not sent again.
// Resources that are requested by name and were rejected together are sent again in parts.
func (s *Session) takeStateOfTheWorld(w *watch, r *wire.Request, v *Verdict, first bool) error {
	s.resumed = s.resumed || first && r.Resumes
	sent := w.status.Sent
	current := r.Nonce != "" && r.Nonce == sent
	if current || v.Kind == Rejected {
		s.takeAnswer(w, r, v)
	}
	if r.Nonce != "" && !current && sent != "" {
		if v.Kind != Rejected {
			v.Kind = Expired
		}
		s.dropUnlisted(w, r.Names.Names)
		return nil
	}
	return s.replaceSubscription(w, r.Names, first, first || !current && v.Kind != Rejected)
}

// dropUnlisted drops the names that a stale request does not list any more. A client that unsubscribes from a name and
// subscribes again before it sees the newest response has lost the resource, and no later request would show it.
func (s *Session) dropUnlisted(w *watch, asked *envoy.Names) {
	if w.whole() || w.names == asked {
		return
	}
	left := s.interner.Common(w.names, asked)
	s.names += left.Len() - w.names.Len()
	w.setNames(left)
	w.forgetUnnamed()
}

// replaceSubscription sets the names of a type that the client subscribes to. If all is true, all resources are sent,
// else only the ones with new names.
func (s *Session) replaceSubscription(w *watch, names wire.Names, first, all bool) error {
	was := w.wildcard
	switch {
	case !names.Empty():
		w.wildcard, w.explicit = names.Star, names.Star
	case first:
		w.wildcard = w.complete || !w.kind.Named
	case w.explicit || !w.wildcard:
		w.wildcard, w.explicit = false, false
	}
	before, leaving := w.names, len(w.pendingRemoval)
	if err := s.setNames(w, names.Names); err != nil {
		return err
	}
	var added []string
	if w.names != before {
		for name := range w.names.Each() {
			if !before.Has(name) {
				added = append(added, name)
			}
		}
	}
	switch {
	case w.idle(), !w.complete && (all || was != w.wildcard):
		w.reset()
		s.look(w)
	case w.whole():
		w.keepNamed()
		if all || len(added) > 0 || was != w.wildcard {
			w.compare, w.mustAnswer = true, w.complete
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
