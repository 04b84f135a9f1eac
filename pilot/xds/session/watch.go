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

// watch is one type on one stream: what the client subscribes to, what it was sent, and what is still to be compared.
//
// It works in one of two ways. As a whole (clusters, listeners, virtual hosts, and any type subscribed to by
// wildcard): a resource that is absent is removed from the client. By name (all else): absence has no meaning. Both
// compare Sets, which the streams of a cohort share: held is the last one, and only what diverges is kept for this
// client alone.
type watch struct {
	kind     *envoy.Type
	complete bool // a response holds all that is subscribed to, and absence means removal: clusters, listeners, objects
	wildcard bool
	explicit bool // the wildcard was asked for by "*", not by naming nothing

	names *envoy.Names // those subscribed to
	held  envoy.Union  // what the client has, unless it diverged
	// initial: held is what a resuming client named, resources without bodies.
	initial  bool
	shared   *wire.SharedVersions       // held.Shared was made from it; nil: held is this client's own
	diverged map[string]*envoy.Resource // by name: what the client has instead of what is in held
	// hosts, of route configurations on a delta stream: the virtual hosts of held that are sent by themselves
	hosts *envoy.Set

	// What is to be compared or sent before the stream is idle.
	compare        bool                       // everything
	resend         map[string]struct{}        // names to send again even if unchanged; of a whole type, to remove where there is no resource
	mustAnswer     bool                       // as a whole: a response is due even when there is nothing new
	unanswered     bool                       // by name: the client may have nothing of names that no half of a Union has
	answered       string                     // the last of these names that the client was answered; empty before the first
	pendingRemoval map[string]*envoy.Resource // to be removed when the pass is over, as the client has them
	bisection      [][]*envoy.Resource        // parts to be sent one after the other: the client rejected them together

	sent          []delivery          // not acknowledged yet, oldest first
	rejected      map[string][]string // versions that the client rejected by themselves
	rejectedState string              // state of the world, as a whole: the last response's version when it was rejected
	rejecting     bool                // the client has rejected a response, and has not acknowledged all that it should have since

	status TypeStatus // times and errors, for introspection, which shows them by shown; Sent, Acked and Version are kept here
}

// delivery is a response that was not acknowledged yet.
type delivery struct {
	nonce     string
	version   string
	resources []*envoy.Resource
	removed   []string // delta
	size      int      // in bytes
	number    uint64   // of the stream's responses, from 1
	// The response also had assignments of unknown names, which are not in resources.
	unknown bool
}

// maxDeliveries bounds what is remembered of a client that never acknowledges. A rejection of an older response is
// counted, but suppresses nothing.
const maxDeliveries = 8

// maxRejections bounds the versions that are remembered of one name.
const maxRejections = 16

// TypeStatus is what a stream knows of one type.
type TypeStatus struct {
	Sent        string // nonce of the last response
	Acked       string // nonce that was last acknowledged
	Version     string // of the last response
	SentAt      time.Time
	AckedAt     time.Time
	LastError   string // the client's last message of a rejection; shown empty while the client lacks nothing because of it
	LastErrorAt time.Time
	Wildcard    bool
	Names       int // subscribed to by name
}

// whole reports in which way the watch works.
func (w *watch) whole() bool {
	return w.wildcard || w.complete || w.kind.Part
}

// idle reports whether the client subscribes to nothing of the type at present.
func (w *watch) idle() bool { return !w.wildcard && w.names == nil }

// pending reports whether something is to be compared or sent, not counting removals.
func (w *watch) pending() bool {
	return w.compare || w.mustAnswer || w.answered != "" || len(w.resend) > 0 || len(w.bisection) > 0 && len(w.sent) == 0
}

// mustBeAnswered reports whether a response is due even when there is nothing new. The first one also is if the
// translation failed when the client asked.
func (w *watch) mustBeAnswered() bool { return w.mustAnswer || w.complete && w.status.Sent == "" }

// reset forgets what the client has: all that it subscribes to is to be sent.
func (w *watch) reset() {
	w.held, w.initial, w.shared, w.diverged, w.pendingRemoval, w.resend, w.bisection = envoy.Union{}, false, nil, nil, nil, nil, nil
	w.compare = !w.idle()
	w.mustAnswer, w.unanswered, w.answered = w.compare && w.complete, w.compare, ""
}

// setNames sets the names that the client subscribes to. It keeps no name that the client has unsubscribed from.
func (w *watch) setNames(names *envoy.Names) {
	w.names = names
	if w.held.Empty != nil {
		w.held.Empty = names
	}
}

// markResend marks a name to be sent or, as a whole, removed if absent.
func (w *watch) markResend(name string) {
	lists.Put(&w.resend, name, struct{}{})
}

// diverge records that the client has another resource than held has.
func (w *watch) diverge(name string, has *envoy.Resource) {
	lists.Put(&w.diverged, name, has)
}

// markRemoval marks a resource, as the client has it, to be removed at the end of the pass.
func (w *watch) markRemoval(name string, had *envoy.Resource) {
	lists.Put(&w.pendingRemoval, name, had)
}

// forgetUnnamed forgets what is kept of names that are not subscribed to any more. By name only.
func (w *watch) forgetUnnamed() {
	maps.DeleteFunc(w.resend, func(name string, _ struct{}) bool { return !w.names.Has(name) })
	maps.DeleteFunc(w.diverged, func(name string, _ *envoy.Resource) bool { return !w.names.Has(name) })
	maps.DeleteFunc(w.rejected, func(name string, _ []string) bool { return !w.names.Has(name) })
}

// keepNamed forgets what the client had by wildcard and did not name, or does not name any more. As a whole only.
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

// acknowledge removes the response of that nonce and those before it from sent, and returns the response.
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

// lastUnacknowledged returns the newest resource of that name that was sent and not acknowledged yet, or nil.
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

// rejectDelivery takes a rejection. Of several resources only one may be bad: they are bisected until it is alone. A
// client that took the others finds nothing new in them. What came with assignments of unknown names is sent again
// without them.
//
// Clusters that the message blames by name are not sent again. Envoy keeps some that it rejects, and would acknowledge
// the same bytes without using them.
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

// blamed returns what may be the names of the resources that Envoy's message says something of: "... NAME: what, NAME:
// what".
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
// as it is, or waits to be sent again with fewer of the resources that were rejected with it.
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

// resendParts sends what was rejected together again in parts. A client that rejects names and asks for them again
// each time would have ever more parts with the same names: then these are taken out of the older parts.
func (w *watch) resendParts(list []*envoy.Resource, parts ...[]*envoy.Resource) {
	n := len(list)
	for _, p := range w.bisection {
		n += len(p)
	}
	if n > 2*(w.names.Len()+w.held.Shared.Len()+w.held.Own.Len()+1) {
		anew := make(map[string]struct{}, len(list))
		for _, r := range list {
			anew[r.Name] = struct{}{}
		}
		var left [][]*envoy.Resource
		for _, p := range w.bisection {
			if p = slices.DeleteFunc(slices.Clone(p), func(r *envoy.Resource) bool { _, ok := anew[r.Name]; return ok }); len(p) > 0 {
				left = append(left, p)
			}
		}
		w.bisection = left
	}
	w.bisection = append(w.bisection, parts...)
}

// rememberRejected records a version that the client rejected by itself.
func (w *watch) rememberRejected(r *envoy.Resource) {
	if w.rejected == nil {
		w.rejected = map[string][]string{}
	}
	all := append(w.rejected[r.Name], r.Version)
	w.rejected[r.Name] = all[max(0, len(all)-maxRejections):]
}

// has reports whether the client was last sent this very version.
func (w *watch) has(r *envoy.Resource) bool {
	is := w.current(r.Name)
	return is != nil && is.Version == r.Version
}

// current is what the client was last sent of that name, or nil.
func (w *watch) current(name string) *envoy.Resource {
	if r, ok := w.diverged[name]; ok {
		return r
	}
	if !w.whole() && !w.names.Has(name) {
		return nil
	}
	return w.held.Get(name)
}

// isRejected reports whether the client rejected this very version.
func (w *watch) isRejected(r *envoy.Resource) bool {
	return slices.Contains(w.rejected[r.Name], r.Version)
}

// resources returns what the client has, by name; route configurations with their virtual hosts, also those that came
// by themselves.
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
