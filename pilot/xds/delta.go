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
			w.reject(d)
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
	for _, name := range names {
		if name == star {
			continue
		}
		if err := s.subscribe(w, name); err != nil {
			return err
		}
		version, ok := versions[name]
		switch {
		case ok && !w.whole():
			if w.typeURL == envoy.EndpointType {
				_, changed := s.changed[name]
				if version, ok = strings.CutSuffix(version, s.warmedBy(name)); !ok || changed {
					continue // its cluster has changed since
				}
			}
			w.names[name] = &envoy.Resource{Name: name, Version: version}
		case !ok && w.whole():
			w.repeat(name)
		}
	}
	if w.whole() && len(versions) > 0 {
		list := make([]*envoy.Resource, 0, len(versions))
		for name, version := range versions {
			list = append(list, &envoy.Resource{Name: name, Version: version})
		}
		w.held, w.declared = envoy.Union{Outbound: envoy.NewSet(list)}, true
		w.narrow()
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

// alter adds to and takes from a subscription.
func (s *session) alter(w *watch, add, remove []string) error {
	whole := w.whole()
	for _, name := range remove {
		switch _, named := w.names[name]; {
		case name == star:
			w.wildcard, w.explicit = false, false
		case named:
			s.unsubscribe(w, name)
			if w.wildcard {
				w.repeat(name) // the client cannot tell whether the wildcard has it too
			} else {
				w.supersede(name)
			}
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
		if err := s.subscribe(w, name); err != nil {
			return err
		}
		if w.whole() {
			w.repeat(name)
		} else {
			w.names[name] = nil
			w.want(name)
		}
	}
	switch {
	case whole != w.whole():
		w.reset()
	case whole:
		w.narrow()
	}
	return nil
}
