package session

import (
	"maps"
	"slices"
	"strconv"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// respondByName returns the response that updates a type to which the client subscribes by name.
func (s *Session) respondByName(w *watch) *wire.Response {
	resend, diverged, before, resumes := w.resend, w.diverged, w.held, w.initial
	w.compare, w.resend, w.mustAnswer = false, nil, false
	target, ok := s.get(w.kind, w.names)
	s.noteIncomplete(w)
	if w.failed = !ok; !ok {
		for name := range resend {
			w.diverge(name, nil)
		}
		w.lastUnknown = "" // start again with the next snapshot
		return nil
	}
	s.oweEarlier(w)
	if w.kind.Divisible && s.divided {
		target = s.splitHosts(w, target)
	}
	change := s.diff(w, target, true)
	w.held, w.initial, w.diverged = target, false, nil
	if w.answerUnknown {
		resend = w.addUnknown(target, before, resumes, resend)
	}
	out := change.Changed
	if len(change.Removed)+len(resend)+len(diverged) > 0 || w.kind.URL == envoy.EndpointType && s.removesClusters() {
		out = s.compareNames(w, before, change, resend, diverged)
	}
	if out = s.withoutRejected(w, out); len(out) == 0 {
		return nil
	}
	r := s.deliverNamed(w, out, change.Versions)
	s.owe(w, out, before)
	if target.Shared.Len()+target.Own.Len() < target.Empty.Len() {
		// Assignments of unknown names are not recorded, because their number is unbounded.
		d := &w.sent[len(w.sent)-1]
		d.resources = slices.DeleteFunc(slices.Clone(out), func(x *envoy.Resource) bool { return !target.Known(x.Name) })
		d.unknown = len(d.resources) < len(out)
	}
	return r
}

// maxUnknown bounds the assignments of unknown names in one response. They are made for one client alone, and stay in
// memory until the client has read them.
const maxUnknown = 256

// addUnknown adds the next unknown names that need a response to resend. A client that resumes is not sent resources
// that it has.
func (w *watch) addUnknown(target, had envoy.Union, resumes bool, resend map[string]struct{}) map[string]struct{} {
	if resend == nil {
		resend = map[string]struct{}{}
	}
	n, last := 0, ""
	for name := range target.Unknown(w.lastUnknown) {
		if resumes {
			if r := had.Get(name); r != nil && r.Version == envoy.EmptyAssignment(name).Version {
				continue
			}
		} else if n == maxUnknown {
			w.lastUnknown = last
			return resend
		}
		n, last = n+1, name
		resend[name] = struct{}{}
	}
	w.answerUnknown, w.lastUnknown = false, ""
	return resend
}

// deliverNamed sends resources to which the client subscribes by name.
func (s *Session) deliverNamed(w *watch, list []*envoy.Resource, by *diff.Versions) *wire.Response {
	for _, r := range list {
		delete(w.pendingRemoval, r.Name)
		if r.Divided {
			s.markHeadSent(r.Name)
		}
	}
	return s.record(w, list, nil, by)
}

// sendBisected returns a response with the next part of a bisection, without resources that have changed since.
func (s *Session) sendBisected(w *watch) *wire.Response {
	for len(w.bisection) > 0 {
		list := slices.DeleteFunc(slices.Clone(w.bisection[0]), func(r *envoy.Resource) bool {
			tombstone := w.kind.Part && w.pendingRemoval[r.Name] != nil && w.pendingRemoval[r.Name].Version == r.Version
			return !tombstone && !w.has(r) || w.isRejected(r)
		})
		switch w.bisection = w.bisection[1:]; {
		case len(list) == 0:
		case w.whole():
			if w.kind.URL == envoy.ClusterType {
				s.resendAssignments(list)
			}
			return s.asPart(w, s.record(w, list, nil, nil))
		default:
			return s.asPart(w, s.deliverNamed(w, list, nil))
		}
	}
	return nil
}

// asPart marks the last response as a part of a rejected one. It belongs to the debts of that one, not to the pass.
func (s *Session) asPart(w *watch, r *wire.Response) *wire.Response {
	w.sent[len(w.sent)-1].part = true
	return r
}

// compareNames compares single names: the names that differ between held and the target, the names that diverged, and
// the names to resend.
func (s *Session) compareNames(
	w *watch, before envoy.Union, change diff.Diff, resend map[string]struct{}, diverged map[string]*envoy.Resource,
) []*envoy.Resource {
	var names []string
	for _, list := range [][]*envoy.Resource{change.Changed, change.Removed} {
		for _, r := range list {
			names = append(names, r.Name)
		}
	}
	names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(resend)), maps.Keys(diverged))
	slices.Sort(names)
	var out []*envoy.Resource
	made := 0
	for _, name := range slices.Compact(names) {
		if !w.names.Has(name) {
			continue
		}
		had, other := diverged[name]
		if !other {
			had = before.Get(name)
		}
		last := had
		if _, ok := resend[name]; ok {
			had = nil
		}
		has := w.held.Get(name)
		switch {
		case w.kind.URL == envoy.EndpointType && s.removesCluster(name):
			// Its cluster still has traffic until respondRemovals, which marks the name for comparison again.
			w.diverge(name, had)
		case has == nil && w.kind.Total:
			// The translation failed.
			w.diverge(name, had)
		case has == nil:
			if last != nil && s.delta {
				w.markRemoval(name, last)
				s.oweNames(w, []*envoy.Resource{last}, false)
			}
		case had == nil || had.Version != has.Version:
			if w.held.Empty != nil && !w.held.Known(name) {
				if made++; made > maxUnknown {
					w.markResend(name)
					continue
				}
			}
			out = append(out, has)
		}
	}
	return out
}

// withoutRejected removes the versions that the client rejected.
func (s *Session) withoutRejected(w *watch, list []*envoy.Resource) []*envoy.Resource {
	if len(w.rejected) == 0 {
		return list
	}
	var bad []*envoy.Resource
	list = slices.DeleteFunc(slices.Clone(list), func(r *envoy.Resource) bool {
		if !w.isRejected(r) {
			return false
		}
		s.observer.Suppressed(w.kind.URL)
		bad = append(bad, r)
		return true
	})
	s.oweNames(w, bad, true)
	return list
}

// removesClusters reports whether clusters will be removed at the end of this pass.
func (s *Session) removesClusters() bool {
	w := s.find(envoy.ClusterType)
	return w != nil && len(w.pendingRemoval) > 0
}

// removesCluster reports whether a cluster will be removed at the end of this pass. Until then its endpoints stay.
func (s *Session) removesCluster(cluster string) bool {
	w := s.find(envoy.ClusterType)
	if w == nil {
		return false
	}
	_, ok := w.pendingRemoval[cluster]
	return ok
}

// resendAssignments resends the assignments of changed clusters, because Envoy warms a changed cluster until its
// assignment arrives, even if it had one before.
func (s *Session) resendAssignments(clusters []*envoy.Resource) {
	w := s.find(envoy.EndpointType)
	if w != nil && w.whole() {
		return
	}
	for _, c := range clusters {
		if w == nil {
			if s.changedClusters != nil {
				s.changedClusters[c.Name] = struct{}{}
			}
			continue
		}
		if w.current(c.Name) != nil {
			w.markResend(c.Name)
		}
	}
}

// respondWholeDelta returns the response that updates a whole type on a delta stream. Removals follow at the end of the
// pass.
func (s *Session) respondWholeDelta(w *watch) *wire.Response {
	resend, answer, before := w.resend, w.mustBeAnswered(), w.held
	w.compare, w.mustAnswer, w.resend = false, false, nil
	target, ok := s.targetOf(w)
	if w.failed = !ok; !ok {
		return nil
	}
	s.oweEarlier(w)
	if w.kind.Part {
		resend = s.hostsToResend(target, w.held, resend)
	}
	change := s.diff(w, target, w.wildcard)
	out := change.Changed
	for _, name := range slices.Sorted(maps.Keys(resend)) {
		if r := target.Get(name); r == nil {
			w.markRemoval(name, nil)
		} else if !diff.Holds(change.Changed, name) {
			out = append(out, r) // append copies, because change.Changed has no spare capacity
		}
	}
	for _, r := range change.Removed {
		w.markRemoval(r.Name, r)
	}
	s.oweNames(w, change.Removed, false)
	for _, r := range out {
		delete(w.pendingRemoval, r.Name)
	}
	w.held, w.initial = target, false
	if w.kind.Part {
		for _, r := range s.newTombstones(w.pendingRemoval) {
			w.markRemoval(r.Name, r)
			out = append(out, r)
		}
	}
	out = s.withoutRejected(w, out)
	if len(out) == 0 && (!answer || s.mayRemove(w)) {
		return nil // the response with the removals is the answer
	}
	if w.kind.URL == envoy.ClusterType {
		s.resendAssignments(out)
		s.addUnrequested(before, out)
	}
	return s.deliver(w, out, nil, change.Versions, before)
}

// addUnrequested records the clusters that are new to the client. Their assignments follow before it requests them,
// because routes to the clusters come next on the stream, and Envoy answers 503 to requests for a cluster without
// assignment.
func (s *Session) addUnrequested(before envoy.Union, clusters []*envoy.Resource) {
	if eds := s.find(envoy.EndpointType); eds == nil || eds.whole() || !s.takesRoutes() {
		return // the client has no routes yet and requests assignments first
	}
	for _, c := range clusters {
		if before.Get(c.Name) == nil {
			s.unrequested = append(s.unrequested, c.Name)
		}
	}
}

// sendUnrequested sends the assignments of new clusters that have endpoints. They are sent again when the client
// requests them.
func (s *Session) sendUnrequested(w *watch) *wire.Response {
	names := s.interner.Of(s.unrequested)
	s.unrequested = nil
	u, _ := s.get(w.kind, names) // failed names are missing
	var out []*envoy.Resource
	for _, name := range names.All() {
		if r := u.Get(name); r != nil && !r.NamesOnly() && !w.names.Has(name) {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil
	}
	s.oweAhead(lists.Map(out, func(r *envoy.Resource) string { return r.Name }))
	return s.deliver(w, out, nil, nil, envoy.Union{})
}

// respondWholeState sends all resources of a type. Removed clusters stay in the response while listeners and routes may
// still refer to them. respondRemovals removes them.
func (s *Session) respondWholeState(w *watch) *wire.Response {
	answer := w.mustBeAnswered()
	w.compare, w.mustAnswer, w.resend = false, false, nil
	target, ok := s.targetOf(w)
	if w.failed = !ok; !ok {
		return nil
	}
	s.oweEarlier(w)
	before := w.held
	change := s.differences.Between(w.held, target, w.wildcard)
	w.held = target
	if len(change.Changed) == 0 && len(change.Removed) == 0 && !answer {
		return nil
	}
	if w.kind.URL == envoy.ClusterType && s.takesRoutes() {
		for _, r := range change.Removed {
			w.markRemoval(r.Name, r)
		}
		s.oweNames(w, change.Removed, false)
		for _, r := range change.Changed {
			delete(w.pendingRemoval, r.Name)
		}
		if len(change.Changed) == 0 && !answer {
			return nil // the response of respondRemovals has all changes
		}
	}
	if !w.complete && len(change.Changed) == 0 {
		return nil // for such a type a missing resource is not removed
	}
	r := s.deliverState(w, before)
	if r != nil && w.kind.URL == envoy.ClusterType {
		s.resendAssignments(change.Changed)
		s.addUnrequested(before, change.Changed)
	}
	return r
}

// takesRoutes reports whether the client subscribes to listeners or routes, which refer to clusters.
func (s *Session) takesRoutes() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool {
		return w.kind.NamesClusters && !w.idle()
	})
}

// deliverState sends the target and the resources to be removed later, unless the client has rejected exactly that.
func (s *Session) deliverState(w *watch, before envoy.Union) *wire.Response {
	var all []*envoy.Resource
	for r := range w.held.All {
		all = append(all, r)
	}
	for _, name := range slices.Sorted(maps.Keys(w.pendingRemoval)) {
		all = append(all, w.pendingRemoval[name])
	}
	if w.rejectedState != "" && diff.Hash(all) == w.rejectedState {
		s.observer.Suppressed(w.kind.URL)
		s.oweState(w)
		return nil
	}
	w.rejectedState = ""
	return s.deliver(w, all, nil, nil, before)
}

// respondRemovals ends the pass for one type.
func (s *Session) respondRemovals(w *watch) *wire.Response {
	gone := slices.Sorted(maps.Keys(w.pendingRemoval))
	w.pendingRemoval = nil
	if s.delta {
		return s.deliver(w, nil, gone, nil, w.held)
	}
	r := s.deliverState(w, w.held)
	s.compareEndpointsOf(w, delivery{removed: gone})
	return r
}

// compareEndpointsOf marks the assignments of removed clusters for comparison if the client still subscribes to them. A
// delta client unsubscribes before it acknowledges the removal. A state-of-the-world client does so in the same step.
func (s *Session) compareEndpointsOf(w *watch, d delivery) {
	if eds := s.find(envoy.EndpointType); w.kind.URL == envoy.ClusterType && eds != nil && !eds.whole() {
		if slices.ContainsFunc(d.removed, eds.names.Has) {
			eds.compare = true
			s.look(eds)
		}
	}
}

// compareStayingEndpoints marks assignments for comparison that waited for the removal of clusters, if the client has
// unsubscribed from these clusters instead.
func (s *Session) compareStayingEndpoints(w *watch, leaving int) {
	if eds := s.find(envoy.EndpointType); w.kind.URL == envoy.ClusterType && len(w.pendingRemoval) < leaving && eds != nil && !eds.whole() {
		eds.compare = eds.compare || !eds.idle()
		s.look(eds)
	}
}

// diff returns the difference between the client's resources and the target. It is computed once for all clients that
// resumed with the same versions.
func (s *Session) diff(w *watch, target envoy.Union, keep bool) diff.Diff {
	switch c := w.shared; {
	case !w.initial:
		return s.differences.Between(w.held, target, keep)
	case c != nil:
		w.shared = nil
		return c.Compared.Between(w.held, target, keep)
	}
	return s.differences.Between(w.held, target, false)
}

// deliver makes a response of the pass. by may have cached versions of the resources, and before is what the client
// had.
func (s *Session) deliver(
	w *watch, resources []*envoy.Resource, removed []string, by *diff.Versions, before envoy.Union,
) *wire.Response {
	r := s.record(w, resources, removed, by)
	s.owe(w, resources, before)
	return r
}

// record makes a response and records it as sent.
func (s *Session) record(w *watch, resources []*envoy.Resource, removed []string, by *diff.Versions) *wire.Response {
	s.nonces++
	if s.snapshot != nil {
		s.shown = max(s.shown, s.snapshot.Revision)
	}
	r := &wire.Response{
		Delta:     s.delta,
		TypeURL:   w.kind.URL,
		Version:   by.Hash(resources),
		Nonce:     s.prefix + strconv.FormatUint(s.nonces, 36),
		Resources: resources,
		Removed:   removed,
	}
	switch {
	case !s.delta:
	case w.kind.URL == envoy.EndpointType:
		var clusters envoy.Union
		if c := s.find(envoy.ClusterType); c != nil {
			clusters = c.held
		}
		r.Versions = by.WithClusters(resources, clusters)
	case s.hasGenerations && (w.kind.Divisible || w.kind.Part):
		r.Versions = make([]string, len(resources))
		for i, x := range resources {
			r.Versions[i] = s.versionWithGeneration(w, x)
		}
	}
	size := r.Size()
	if !s.delta && w.whole() {
		for _, d := range w.sent { // a client that acknowledges the newest one has read the earlier ones
			size += d.size
			w.unrecorded = d.number
		}
		w.sent = w.sent[:0]
	}
	if w.answered == w.newest {
		w.answered = s.nonces - 1
	}
	if w.newest == 0 {
		w.fresh = s.nonces
	}
	w.newest = s.nonces
	w.sent = append(w.sent, delivery{nonce: r.Nonce, version: r.Version, resources: resources, removed: removed, size: size, number: s.nonces})
	if len(w.sent) > maxDeliveries {
		s.compareEndpointsOf(w, w.sent[0])
		w.sent[1].size += w.sent[0].size // the client may not have read it yet
		w.unrecorded = w.sent[0].number
		w.sent = slices.Delete(w.sent, 0, 1)
	}
	w.status.Sent, w.status.Version = r.Nonce, r.Version
	return r
}
