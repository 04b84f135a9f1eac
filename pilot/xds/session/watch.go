package session

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// watch is one type on one stream: the client's subscription, its resources, and the pending comparisons.
//
// A whole type (clusters, listeners, virtual hosts, and any type with a wildcard subscription) removes missing
// resources from the client. For types by name (all others), a missing resource has no meaning. Both compare Sets,
// which the streams of a cohort share: held is the last one, and only differences are recorded for this client alone.
type watch struct {
	kind     *envoy.Type
	complete bool // a response has everything subscribed to, and missing resources are removed: clusters, listeners, objects
	wildcard bool
	explicit bool // the wildcard was requested by "*" instead of an empty list

	names *envoy.Names // names that the client subscribes to
	first *envoy.Names // names of the first request, if the client had answered no response before
	held  envoy.Union  // resources of the client, unless they diverged
	// initial is true if held are the resources that a resuming client named, without bodies.
	initial  bool
	shared   *wire.SharedVersions       // versions that held.Shared was made from; nil if held is this client's own
	diverged map[string]*envoy.Resource // by name: resource of the client instead of the one in held
	// hosts are the virtual hosts of route configurations in held that are sent on demand on a delta stream.
	hosts *envoy.Set

	// The fields below are the pending comparisons and responses.
	compare        bool                       // compare everything
	failed         bool                       // the last translation failed: compare everything with the next push
	resend         map[string]struct{}        // names to send again even if unchanged, or to remove from a whole type
	mustAnswer     bool                       // whole type: a response is due even without a change
	answerUnknown  bool                       // by name: names that no half of a Union has may need an empty response
	lastUnknown    string                     // last name with such a response; empty before the first
	pendingRemoval map[string]*envoy.Resource // resources of the client to remove at the end of the pass
	bisection      [][]*envoy.Resource        // parts of a rejected response to send one after the other

	sent          []delivery          // unacknowledged responses, oldest first
	rejected      map[string][]string // versions that the client rejected alone
	rejectedState string              // whole type, state of the world: version of the last response if it was rejected
	rejecting     bool                // the client has rejected a response, and has not acknowledged everything since

	// The fields below say what the client has answered; see Debts.
	bit          uint64 // of this watch alone
	newest       uint64 // number of the last response
	answered     uint64 // the client has answered all responses up to this number
	unrecorded   uint64 // number of the newest response that was dropped from sent
	fresh        uint64 // number of the newest response with a resource that the client did not have, and that any revision may have made
	refusedState uint64 // whole type, state of the world: number of the last rejected response, or 0 after a later acknowledgement
	incomplete   bool   // the last translation failed, or failed for some names
	message      string // of the last rejection

	status TypeStatus // state for introspection; see shown
}

// delivery is an unacknowledged response.
type delivery struct {
	nonce     string
	version   string
	resources []*envoy.Resource
	removed   []string // delta only
	size      int      // in bytes
	number    uint64   // number of the response on the stream, from 1
	// unknown is true if the response also had assignments of unknown names, which are not in resources.
	unknown bool
	part    bool // a part of a rejected response
}

// empty reports whether the response had neither resources nor names of removed resources. A client that resumes with
// everything gets such a response first.
func (d *delivery) empty() bool { return len(d.resources) == 0 && len(d.removed) == 0 && !d.unknown }

// maxDeliveries bounds the recorded responses to a client that never acknowledges. A rejection of an older response is
// counted, but suppresses nothing.
const maxDeliveries = 8

// maxRejections bounds the recorded versions of one name.
const maxRejections = 16

// TypeStatus is the status of one type on a stream.
type TypeStatus struct {
	Sent        string // nonce of the last response
	Acked       string // nonce of the last acknowledged response
	Version     string // version of the last response
	SentAt      time.Time
	AckedAt     time.Time
	LastError   string // message of the client's last rejection; not shown once the client lacks nothing
	LastErrorAt time.Time
	Wildcard    bool
	Names       int // number of subscribed names
}

// whole reports whether the type is whole; see watch.
func (w *watch) whole() bool {
	return w.wildcard || w.complete || w.kind.Part
}

// idle reports whether the client subscribes to nothing of the type.
func (w *watch) idle() bool { return !w.wildcard && w.names == nil }

// pending reports whether comparisons or responses are pending, except removals.
func (w *watch) pending() bool {
	return w.compare || w.mustAnswer || w.lastUnknown != "" || len(w.resend) > 0 || len(w.bisection) > 0 && len(w.sent) == 0
}

// mustBeAnswered reports whether a response is due even without a change. The first one also is if the translation
// failed at the client's request.
func (w *watch) mustBeAnswered() bool { return w.mustAnswer || w.complete && w.status.Sent == "" }

// reset drops the state of the client's resources, so that everything is sent.
func (w *watch) reset() {
	w.held, w.initial, w.shared, w.diverged, w.pendingRemoval, w.resend, w.bisection = envoy.Union{}, false, nil, nil, nil, nil, nil
	w.compare = !w.idle()
	w.mustAnswer, w.answerUnknown, w.lastUnknown = w.compare && w.complete, w.compare, ""
}

// setNames sets the names that the client subscribes to, and keeps no other names.
func (w *watch) setNames(names *envoy.Names) {
	w.names = names
	if w.held.Empty != nil {
		w.held.Empty = names
	}
}

// markResend marks a name to be sent or, for a whole type, removed if missing.
func (w *watch) markResend(name string) {
	lists.Put(&w.resend, name, struct{}{})
}

// diverge records that the client's resource differs from the one in held.
func (w *watch) diverge(name string, has *envoy.Resource) {
	lists.Put(&w.diverged, name, has)
}

// markRemoval marks a resource of the client to be removed at the end of the pass.
func (w *watch) markRemoval(name string, had *envoy.Resource) {
	lists.Put(&w.pendingRemoval, name, had)
}

// forgetUnnamed drops the state of names without a subscription. It is for types by name.
func (w *watch) forgetUnnamed() {
	maps.DeleteFunc(w.resend, func(name string, _ struct{}) bool { return !w.names.Has(name) })
	maps.DeleteFunc(w.diverged, func(name string, _ *envoy.Resource) bool { return !w.names.Has(name) })
	maps.DeleteFunc(w.rejected, func(name string, _ []string) bool { return !w.names.Has(name) })
}

// keepNamed drops resources that the client has not subscribed to by name. It is for whole types.
func (w *watch) keepNamed() {
	if w.wildcard {
		return
	}
	w.held, w.shared = subset(w.held, w.names), nil
	maps.DeleteFunc(w.pendingRemoval, func(name string, _ *envoy.Resource) bool { return !w.names.Has(name) })
}

func subset(u envoy.Union, names *envoy.Names) envoy.Union {
	var list []*envoy.Resource
	for name := range names.Each() {
		if r := u.Get(name); r != nil {
			list = append(list, r)
		}
	}
	if list == nil {
		return envoy.Union{}
	}
	return envoy.Union{Shared: envoy.NewSet(list)}
}

// acknowledge removes the response with that nonce and earlier ones from sent, and returns the response.
func (w *watch) acknowledge(nonce string) (delivery, bool) {
	i := slices.IndexFunc(w.sent, func(d delivery) bool { return d.nonce == nonce })
	if i < 0 {
		return delivery{}, false
	}
	d := w.sent[i]
	for _, earlier := range w.sent[:i] {
		d.removed = slices.Concat(d.removed, earlier.removed)
	}
	w.sent = slices.Delete(w.sent, 0, i+1)
	return d, true
}

// lastUnacknowledged returns the newest unacknowledged resource with that name, or nil.
func (w *watch) lastUnacknowledged(name string) *envoy.Resource {
	for _, d := range slices.Backward(w.sent) {
		for _, r := range d.resources {
			if r.Name == name {
				return r
			}
		}
	}
	return nil
}

// rejectDelivery handles a rejection. Only one of several resources may be bad, so they are bisected. A client that
// accepted the others finds nothing new in them. Resources in a response with assignments of unknown names are sent
// again without these.
//
// Clusters that the message names are not sent again. Envoy keeps some rejected clusters, and would acknowledge the
// same bytes without using them.
func (s *Session) rejectDelivery(w *watch, d delivery, message string) {
	if w.whole() && !s.delta {
		w.rejectedState = d.version
		return
	}
	list := d.resources
	if w.kind.URL == envoy.ClusterType && len(list) > 1 {
		bad := blamed(message)
		list = slices.DeleteFunc(slices.Clone(list), func(r *envoy.Resource) bool {
			if bad[r.Name] {
				w.rememberRejected(r)
			}
			return bad[r.Name]
		})
	}
	half := len(list) / 2
	switch {
	case len(list) == 0:
	case len(list) < len(d.resources) || d.unknown:
		w.resendParts(list, list)
	case len(list) == 1:
		w.rememberRejected(list[0])
	default:
		w.resendParts(list, list[:half], list[half:])
	}
}

// blamed returns the possible names of resources in Envoy's message, which has the format "... NAME: reason, NAME:
// reason".
func blamed(message string) map[string]bool {
	out := map[string]bool{}
	for part := range strings.SplitSeq(message, ", ") {
		if head, _, ok := strings.Cut(part, ": "); ok {
			out[head[strings.LastIndexByte(head, ' ')+1:]] = true
		}
	}
	return out
}

// withholds reports whether the client has rejected a resource that it should have. Such a resource is not sent again
// unchanged, or it waits to be sent again in a part of the rejected response.
func (w *watch) withholds() bool {
	if len(w.bisection) > 0 {
		return true
	}
	for name, versions := range w.rejected {
		if r := w.current(name); r != nil && slices.Contains(versions, r.Version) {
			return true
		}
	}
	return false
}

// resendParts sends the resources of a rejected response again in parts. A client that repeatedly rejects and requests
// names would accumulate parts with the same names, so these names are removed from older parts.
func (w *watch) resendParts(list []*envoy.Resource, parts ...[]*envoy.Resource) {
	n := len(list)
	for _, p := range w.bisection {
		n += len(p)
	}
	if n > 2*(w.names.Len()+w.held.Shared.Len()+w.held.Own.Len()+1) {
		renewed := make(map[string]struct{}, len(list))
		for _, r := range list {
			renewed[r.Name] = struct{}{}
		}
		var left [][]*envoy.Resource
		for _, p := range w.bisection {
			if p = slices.DeleteFunc(slices.Clone(p), func(r *envoy.Resource) bool { _, ok := renewed[r.Name]; return ok }); len(p) > 0 {
				left = append(left, p)
			}
		}
		w.bisection = left
	}
	w.bisection = append(w.bisection, parts...)
}

// rememberRejected records a version that the client rejected alone.
func (w *watch) rememberRejected(r *envoy.Resource) {
	if w.rejected == nil {
		w.rejected = map[string][]string{}
	}
	all := append(w.rejected[r.Name], r.Version)
	w.rejected[r.Name] = all[max(0, len(all)-maxRejections):]
}

// has reports whether the client was last sent this version.
func (w *watch) has(r *envoy.Resource) bool {
	is := w.current(r.Name)
	return is != nil && is.Version == r.Version
}

// current returns the resource with that name that the client was last sent, or nil.
func (w *watch) current(name string) *envoy.Resource {
	if r, ok := w.diverged[name]; ok {
		return r
	}
	if !w.whole() && !w.names.Has(name) {
		return nil
	}
	return w.held.Get(name)
}

// isRejected reports whether the client rejected this version.
func (w *watch) isRejected(r *envoy.Resource) bool {
	return slices.Contains(w.rejected[r.Name], r.Version)
}

// resources returns the client's resources, sorted by name. Route configurations include their virtual hosts, even if
// these were sent on demand.
func (w *watch) resources() []*envoy.Resource {
	var list []*envoy.Resource
	for r := range w.held.All {
		if _, other := w.diverged[r.Name]; !other && (w.whole() || w.names.Has(r.Name)) {
			list = append(list, r)
		}
	}
	for _, r := range w.diverged {
		if r != nil {
			list = append(list, r)
		}
	}
	list = slices.DeleteFunc(list, func(r *envoy.Resource) bool { return r.Size() == 0 })
	for i, r := range list {
		if r.Divided {
			list[i] = envoy.Merged(r, w.hosts.Below(r.Name))
		}
	}
	slices.SortFunc(list, diff.ByName)
	return list
}
