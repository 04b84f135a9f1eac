package session

import (
	"math"
	"slices"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// settle ends the debts that are in force.
func (s *Session) settle() {
	if len(s.debts.open) == 0 {
		return
	}
	for i := 0; i < len(s.debts.open); i++ {
		x := &s.debts.open[i]
		s.catchUp(x)
		if x.resumes && !s.endResumed(x) || x.making || !x.guessed && !s.paid(x) {
			continue
		}
		s.debts.remove(i, !x.guessed)
		i--
	}
}

// endResumed reports whether the first requests of a client that resumes are answered. They all precede its first
// answer.
func (s *Session) endResumed(x *debt) bool {
	if !s.answers || s.resuming || s.Pending() || slices.ContainsFunc(s.watches, func(w *watch) bool { return w.failed || w.incomplete }) {
		return false
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	x.resumes = false
	if x.To == math.MaxUint64 && len(x.ahead) == 0 {
		x.To = s.revision
	}
	return true
}

// Arrived reports whether the client has answered its first configuration: everything that it was sent, and everything
// that this refers to. types are the URLs of the types that such a client always requests. If Arrived returns true, the
// debts of the session include what the client has rejected.
func (s *Session) Arrived(types []string) bool {
	if !s.answers || s.undecided || s.Pending() {
		return false
	}
	for _, url := range types {
		if w := s.find(url); w == nil || w.idle() {
			return false
		}
	}
	for _, w := range s.watches {
		if w.failed || w.incomplete || w.answered < w.newest || len(w.bisection) > 0 {
			return false
		}
	}
	for _, w := range s.watches {
		if !s.leads(w) || w.refusedState != 0 {
			continue
		}
		for r := range w.held.All {
			if is := w.current(r.Name); is != nil && (w.whole() || w.names.Has(r.Name)) && !w.isRejected(is) && !s.asksFor(is) {
				return false
			}
		}
	}
	return true
}

// asksFor reports whether the client subscribes to everything that a resource refers to and that it may have.
func (s *Session) asksFor(is *envoy.Resource) bool {
	if is.Divided {
		w := s.find(envoy.VirtualHostType)
		return w != nil && !w.idle()
	}
	return !slices.ContainsFunc(is.References(), func(r Reference) bool {
		if r.TypeURL == envoy.ClusterType && !s.profile.Named || r.TypeURL == envoy.SecretType && !s.observer.MayHave(r.Name) {
			return false
		}
		w := s.find(r.TypeURL)
		return w == nil || !w.wildcard && !w.names.Has(r.Name)
	})
}

// catchUp ends the time in which any revision may concern a client that was sent assignments ahead. It has them, or it
// does not take their clusters.
func (s *Session) catchUp(x *debt) {
	if x.making || len(x.ahead) == 0 {
		return
	}
	clusters, endpoints := s.find(envoy.ClusterType), s.find(envoy.EndpointType)
	for len(x.ahead) > 0 {
		name := x.ahead[0]
		has := endpoints.names.Has(name) && s.inForce(endpoints, name, maxDepth)
		gone := clusters.current(name) == nil && s.inForce(clusters, name, maxDepth)
		if !has && !gone && !clusters.refuses(name) {
			return
		}
		x.ahead = x.ahead[1:]
	}
	if s.debts.mu.Lock(); !x.resumes {
		x.To = s.revision
	}
	s.debts.mu.Unlock()
}

// paid reports whether the client has everything of a debt in force.
func (s *Session) paid(x *debt) bool {
	if x.unresolved || x.lost || len(x.ahead) > 0 {
		return false
	}
	for _, w := range s.watches {
		if x.watches&w.bit != 0 && w.unanswered() <= x.last {
			return false
		}
		if x.looks&w.bit != 0 && !w.pending() && !w.failed && !w.incomplete {
			x.looks &^= w.bit
		}
		if x.state&w.bit != 0 && w.refusedState == 0 {
			x.state &^= w.bit
		}
	}
	x.follows = slices.DeleteFunc(x.follows, func(f follow) bool { return f.w.unanswered() > f.number })
	if len(x.names) > maxNamed {
		for _, l := range x.names {
			x.all |= l.w.bit
		}
		x.names = nil
	}
	for _, w := range s.watches {
		if x.all&w.bit != 0 && s.allInForce(w) {
			x.all &^= w.bit
		}
	}
	if x.looks|x.state|x.all != 0 || len(x.follows) > 0 {
		return false
	}
	for len(x.names) > 0 {
		l := &x.names[0]
		for l.next < len(l.list) {
			r := l.list[l.next]
			if (!l.sent || !s.referencesInForce(l.w, r, 0)) && !s.inForce(l.w, r.Name, 0) && !s.lacksAsBefore(x, l, r) {
				break
			}
			l.next++
		}
		if l.next < len(l.list) {
			r := l.list[l.next]
			if !x.Rejected && !l.w.pending() && l.w.refuses(r.Name) {
				s.debts.reject(x, l.w)
			}
			is := r
			if !l.sent {
				is = l.w.current(r.Name)
			}
			if is != nil {
				name, why := s.awaited(l.w, is, 0)
				s.debts.await(x, name, why)
			}
			return false
		}
		x.names = x.names[1:]
	}
	x.names = nil
	return true
}

// allInForce reports whether the client has in force everything of a type that it was sent.
func (s *Session) allInForce(w *watch) bool {
	if w.pending() || w.failed || w.incomplete || w.answered < w.newest || w.refusedState != 0 || len(w.pendingRemoval) > 0 || w.withholds() {
		return false
	}
	if !s.leads(w) {
		return true
	}
	for r := range w.held.All {
		if is := w.current(r.Name); is != nil && (w.whole() || w.names.Has(r.Name)) && !s.referencesInForce(w, is, 0) {
			return false
		}
	}
	return true
}

// maxDepth bounds the chain of references: a listener names an extension, which names a secret.
const maxDepth = 4

// inForce reports whether the client has acknowledged the resource of a name that it was sent last, or the removal, and
// has in force what the resource refers to. A name that the client no longer subscribes to is not owed.
func (s *Session) inForce(w *watch, name string, depth int) bool {
	if !w.wildcard && !w.names.Has(name) {
		return true
	}
	is := w.current(name)
	return s.hasCurrent(w, name) && (is == nil || s.referencesInForce(w, is, depth))
}

// hasCurrent reports whether the client has acknowledged the resource of a name that it was sent last, or the removal.
func (s *Session) hasCurrent(w *watch, name string) bool {
	if w.pending() || w.failed || len(w.bisection) > 0 || w.pendingRemoval[name] != nil || w.inFlight(name) {
		return false
	}
	state := !s.delta && w.whole()
	if state && w.refusedState != 0 {
		return false
	}
	if is := w.current(name); is != nil {
		return !w.isRejected(is)
	}
	return !state || w.answered >= w.newest
}

// referencesInForce reports whether the client has in force what a resource refers to.
func (s *Session) referencesInForce(w *watch, is *envoy.Resource, depth int) bool {
	switch {
	case depth >= maxDepth || !s.leads(w):
		return true
	case is.Divided:
		return s.hostsInForce(w, is.Name)
	}
	for _, r := range is.References() {
		if !s.referenceInForce(r, depth+1) {
			return false
		}
	}
	return true
}

// hostsInForce reports whether the client has the virtual hosts of a route configuration that it was sent without them.
func (s *Session) hostsInForce(routes *watch, route string) bool {
	w := s.find(envoy.VirtualHostType)
	if w == nil || w.idle() {
		return false // it subscribes when it has the route configuration
	}
	for h := range routes.hosts.Below(route) {
		if w.current(h.Name) == nil || !s.inForce(w, h.Name, maxDepth) {
			return false
		}
	}
	return !w.pending() && !w.failed
}

// referenceInForce reports whether the client subscribes to a name, and has what the name stands for.
func (s *Session) referenceInForce(r Reference, depth int) bool {
	switch r.TypeURL {
	case envoy.ClusterType:
		if !s.profile.Named {
			return true // the client has all clusters
		}
	}
	w := s.find(r.TypeURL)
	if w == nil || !w.wildcard && !w.names.Has(r.Name) {
		return false
	}
	if w.current(r.Name) == nil && (r.TypeURL != envoy.ClusterType || w.pending()) {
		return false // it does not exist yet, and the client waits for it
	}
	return s.inForce(w, r.Name, depth)
}

// Reasons why a client awaits a name.
const (
	whyNotAsked = "the client has not asked for it yet"
	whyNotHave  = "the client has not acknowledged it yet"
	whyAbsent   = "it does not exist or cannot be used"
	whyRefused  = "the client may not have it"
)

// awaited returns a name that a resource refers to and the client does not have in force, and what is missing. If there
// are several, it is one that may never come.
func (s *Session) awaited(w *watch, is *envoy.Resource, depth int) (name Reference, why string) {
	if depth >= maxDepth || !s.leads(w) || is.Divided {
		return name, why
	}
	for _, r := range is.References() {
		if s.referenceInForce(r, depth+1) {
			continue
		}
		to := s.find(r.TypeURL)
		switch absent := s.absent(r); {
		case absent != "":
			return r, absent
		case to == nil || !to.wildcard && !to.names.Has(r.Name):
			name, why = r, whyNotAsked
			continue
		}
		name, why = r, whyNotHave
		if next := to.current(r.Name); next != nil {
			if inner, because := s.awaited(to, next, depth+1); because != "" {
				name, why = inner, because
			}
		}
	}
	return name, why
}

// absent returns why a name is not sent to the client although it asks for it, or an empty string.
func (s *Session) absent(r Reference) string {
	if r.TypeURL == envoy.SecretType && s.mayNotHave(r.Name) {
		return whyRefused
	}
	w := s.find(r.TypeURL)
	if w == nil || r.TypeURL == envoy.ClusterType || !w.wildcard && !w.names.Has(r.Name) || w.current(r.Name) != nil ||
		w.pending() || w.failed || w.inFlight(r.Name) || r.TypeURL == envoy.SecretType && s.undecided {
		return ""
	}
	return whyAbsent
}

// lacksAsBefore reports whether a client has acknowledged a resource and has in force all that it refers to, but for
// names that are absent and that the earlier version of the resource referred to. These belong to an earlier debt. What
// a client that resumes had is not known, but it has asked for what that referred to.
func (s *Session) lacksAsBefore(x *debt, l *named, r *envoy.Resource) bool {
	return l.sent && s.lacksOnly(x, l, r) || s.hasCurrent(l.w, r.Name) && s.lacksOnly(x, l, l.w.current(r.Name))
}

func (s *Session) lacksOnly(x *debt, l *named, is *envoy.Resource) bool {
	if is == nil || is.Divided || !s.leads(l.w) {
		return false
	}
	var before []Reference
	if was := l.before.Get(is.Name); was != nil {
		before = was.References()
	}
	return !slices.ContainsFunc(is.References(), func(r Reference) bool {
		if s.referenceInForce(r, 1) {
			return false
		}
		why := s.absent(r)
		known := x.resumed && (why == whyRefused || why != "" && s.find(r.TypeURL).first.Has(r.Name))
		return why == "" || !known && !slices.Contains(before, r)
	})
}

// Reference is a name in a resource.
type Reference = envoy.Reference

// mayNotHave reports whether the client may not have a secret. It is false while that is undecided.
func (s *Session) mayNotHave(name string) bool {
	if !s.observer.MayHave(name) {
		return true
	}
	names := s.Subscribed(envoy.SecretType)
	return s.guarded && !s.undecided && s.judged == names && (s.granted == nil || !s.granted.Has(name)) && names.Has(name)
}

// refuses reports whether the client has rejected the version of a name that it should have.
func (w *watch) refuses(name string) bool {
	is := w.current(name)
	return is != nil && w.isRejected(is)
}

// unanswered returns the number of the oldest response that the client may not have answered, or the largest number if
// it has answered all.
func (w *watch) unanswered() uint64 {
	switch {
	case w.answered >= w.newest:
		return math.MaxUint64
	case w.unrecorded > w.answered:
		return w.answered + 1
	}
	for _, d := range w.sent {
		if d.number > w.answered {
			return d.number
		}
	}
	return w.answered + 1
}

// inFlight reports whether a response with a resource of that name, or with its removal, may be unanswered.
func (w *watch) inFlight(name string) bool {
	if w.answered >= w.newest {
		return false
	}
	if w.unrecorded > w.answered {
		return true
	}
	for _, d := range w.sent {
		if d.number > w.answered && (d.unknown || slices.Contains(d.removed, name) ||
			slices.ContainsFunc(d.resources, func(r *envoy.Resource) bool { return r.Name == name })) {
			return true
		}
	}
	return false
}
