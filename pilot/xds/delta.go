package xds

import (
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// incremental takes a request of a delta stream. An error ends the stream: the client broke a limit.
//
// Requests add to and take from the subscription whatever nonce they carry; the nonce only says which response is acknowledged or rejected. The first
// request for a type may name the versions that the client has from an earlier stream.
func (s *session) incremental(r *discoveryv3.DeltaDiscoveryRequest) (verdict, error) {
	v := verdict{typeURL: r.GetTypeUrl()}
	if err := s.check(r.GetTypeUrl(), r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe()); err != nil {
		return v, err
	}
	if len(r.GetInitialResourceVersions()) > s.limits.NamesPerStream {
		return v, s.check(r.GetTypeUrl(), make([]string, s.limits.NamesPerStream+1))
	}
	w := s.find(r.GetTypeUrl())
	first := w == nil
	if first {
		w = s.open(r.GetTypeUrl())
	}
	nonce := r.GetResponseNonce()
	switch detail := r.GetErrorDetail(); {
	case detail != nil:
		v.kind, v.code, v.message = rejected, codes.Code(detail.GetCode()), detail.GetMessage()
		if d, ok := w.settle(nonce); ok {
			s.refuse(w, d)
		}
	case nonce != "":
		if _, ok := w.settle(nonce); ok {
			v.kind = acked
			w.status.Acked = nonce
		}
	}
	if first {
		return v, s.begin(w, r)
	}
	return v, s.alter(w, r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe())
}

// begin takes the first request for a type on the stream.
func (s *session) begin(w *watch, r *discoveryv3.DeltaDiscoveryRequest) error {
	names, versions := r.GetResourceNamesSubscribe(), r.GetInitialResourceVersions()
	w.explicit = slices.Contains(names, star)
	s.resumed = s.resumed || len(versions) > 0
	w.wildcard = w.explicit || len(names) == 0 && (w.complete || !isNamed(w.typeURL))
	if err := s.want(w, s.lists.of(names)); err != nil {
		return err
	}
	if w.whole() {
		for _, name := range w.names.All() {
			if _, ok := versions[name]; !ok {
				w.repeat(name)
			}
		}
	}
	if len(versions) > 0 {
		list := make([]*envoy.Resource, 0, len(versions))
		for name, version := range versions {
			if s.declares(w, name, &version) {
				list = append(list, &envoy.Resource{Name: name, Version: version})
			}
		}
		w.held, w.declared = envoy.Union{Outbound: envoy.NewSet(list)}, true
		if w.whole() {
			w.narrow()
		}
	}
	switch w.typeURL {
	case envoy.ClusterType:
		s.resuming = len(versions) > 0
		if s.resuming && s.find(envoy.EndpointType) == nil {
			s.changed = map[string]struct{}{}
		}
	case envoy.EndpointType:
		s.changed = nil
	}
	w.compare = !w.idle()
	w.answer = w.compare && w.complete
	return nil
}

// declares tells whether what a resuming client says that it has counts, and takes from the version what this server added.
func (s *session) declares(w *watch, name string, version *string) bool {
	if w.whole() {
		return true
	}
	if !w.names.Has(name) {
		return false
	}
	if w.typeURL == envoy.EndpointType {
		_, changed := s.changed[name]
		own, ok := strings.CutSuffix(*version, s.warmedBy(name))
		*version = own
		return ok && !changed // else its cluster has changed since
	}
	return true
}

// alter adds to and takes from a subscription.
func (s *session) alter(w *watch, add, remove []string) error {
	whole, before := w.whole(), w.names
	if err := s.want(w, s.lists.edited(w.names, remove, add)); err != nil {
		return err
	}
	for _, name := range remove {
		switch {
		case name == star:
			w.wildcard, w.explicit = false, false
		case before.Has(name):
			if w.wildcard {
				w.repeat(name) // the client cannot tell whether the wildcard has it too
				continue
			}
			w.supersede(name)
			delete(w.again, name)
			delete(w.behind, name)
			delete(w.gone, name)
			w.compare = w.compare || w.typeURL == envoy.RouteType && w.hosts != nil // its virtual hosts go with it
		}
	}
	if slices.Contains(add, star) && !w.wildcard {
		w.wildcard, w.compare, w.answer = true, true, w.complete
	}
	for _, name := range add {
		if name == star {
			w.explicit = true
			continue
		}
		w.repeat(name)
	}
	switch {
	case whole != w.whole():
		w.reset()
	case whole:
		w.narrow()
	}
	return nil
}
