package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// watch is one type on one stream: what the client asked for, what it was sent, and what is still to be looked at.
//
// It works in one of two ways. As a whole (clusters, listeners, virtual hosts, and any type subscribed to by wildcard): what is absent is removed. By name (all
// else): what is not there is no concern of the client's. Both compare Sets, which the streams of a cohort share: held is the last one, and only what this client
// has otherwise is kept for it alone.
type watch struct {
	typeURL  string
	complete bool // a response holds all that is subscribed to, and absence means removal: clusters, listeners, objects
	wildcard bool
	explicit bool // the wildcard was asked for by "*", not by naming nothing

	names *envoy.Names // those subscribed to
	held  envoy.Union  // what the client has, as far as behind does not say otherwise
	// declared: held is what the client named on reconnecting, resources without bodies.
	declared bool
	core     *core                      // held.Outbound comes of it, and others compare the same; nil: it is this client's own
	behind   map[string]*envoy.Resource // by name: what the client has in place of what held says
	hosts    *envoy.Set                 // of route configurations, delta: the virtual hosts of those held that come by themselves

	// What is to be looked at before the stream is idle.
	compare bool                       // everything
	again   map[string]struct{}        // to be sent whatever the client has, or, as a whole, declared absent
	answer  bool                       // as a whole: a response is due even when there is nothing new
	gone    map[string]*envoy.Resource // to be removed when the pass is over, as the client has them
	parts   [][]*envoy.Resource        // to be sent one after the other, for the client rejected them together

	sent     []delivery          // not acknowledged yet, oldest first
	rejected map[string][]string // versions that the client rejected by themselves
	refused  string              // state of the world, as a whole: the last response's version when it was rejected

	status TypeStatus // times and errors, for introspection; Sent, Acked and Version are kept here
}

// delivery is a response that was not acknowledged yet.
type delivery struct {
	nonce     string
	version   string
	resources []*envoy.Resource
	removed   []string // delta
	size      int      // in bytes
}

// maxDeliveries bounds what is remembered of a client that never acknowledges. A rejection of an older response is counted, but suppresses nothing.
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
	LastError   string // what the client said of the last response that it rejected, until it acknowledges one
	LastErrorAt time.Time
	Wildcard    bool
	Names       int // subscribed to by name
}

// whole tells which way the watch works.
func (w *watch) whole() bool {
	return w.wildcard || w.complete || w.typeURL == envoy.VirtualHostType
}

// idle tells that the client wants nothing of the type at present.
func (w *watch) idle() bool { return !w.wildcard && w.names == nil }

// pending tells that something is to be looked at, not counting removals.
func (w *watch) pending() bool {
	return w.compare || w.answer || len(w.again) > 0 || len(w.parts) > 0 && len(w.sent) == 0
}

// reset forgets what the client has: all that it subscribes to is to be sent.
func (w *watch) reset() {
	w.held, w.declared, w.core, w.behind, w.gone, w.again, w.parts = envoy.Union{}, false, nil, nil, nil, nil, nil
	w.compare = !w.idle()
	w.answer = w.compare && w.complete
}

// repeat marks a name to be sent, or, as a whole, declared absent.
func (w *watch) repeat(name string) {
	if w.again == nil {
		w.again = map[string]struct{}{}
	}
	w.again[name] = struct{}{}
}

// lag notes that the client has another resource than held says.
func (w *watch) lag(name string, has *envoy.Resource) {
	if w.behind == nil {
		w.behind = map[string]*envoy.Resource{}
	}
	w.behind[name] = has
}

// mark notes what is to be removed at the end of the pass.
func (w *watch) mark(name string, had *envoy.Resource) {
	if w.gone == nil {
		w.gone = map[string]*envoy.Resource{}
	}
	w.gone[name] = had
}

// drop forgets what is kept of names that are not subscribed to any more. By name only.
func (w *watch) drop() {
	maps.DeleteFunc(w.again, func(name string, _ struct{}) bool { return !w.names.Has(name) })
	maps.DeleteFunc(w.behind, func(name string, _ *envoy.Resource) bool { return !w.names.Has(name) })
	maps.DeleteFunc(w.rejected, func(name string, _ []string) bool { return !w.names.Has(name) })
}

// narrow forgets what the client had by wildcard and did not name, or named and does not any more. As a whole only.
func (w *watch) narrow() {
	if w.wildcard {
		return
	}
	w.held, w.core = subset(w.held, w.names), nil
	maps.DeleteFunc(w.gone, func(name string, _ *envoy.Resource) bool { return !w.names.Has(name) })
}

func subset(u envoy.Union, names *envoy.Names) envoy.Union {
	var list []*envoy.Resource
	for _, name := range names.All() {
		if r := u.Get(name); r != nil {
			list = append(list, r)
		}
	}
	if list == nil {
		return envoy.Union{}
	}
	return envoy.Union{Outbound: envoy.NewSet(list)}
}

// settle closes the book on the response of that nonce and those before it, and gives the response.
func (w *watch) settle(nonce string) (delivery, bool) {
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

// refuse takes a rejection. Of several resources only one may be bad: they are sent again in parts, until it is alone. A client that took the others finds nothing new in them.
func (s *session) refuse(w *watch, d delivery) {
	switch {
	case w.whole() && !s.delta:
		w.refused = d.version
	case len(d.resources) > 1:
		w.halve(d.resources)
	case len(d.resources) == 1:
		w.reject(d.resources[0])
	}
}

// halve has what was rejected together sent again in two parts. A client that asks for names again as often as it rejects them would have ever more parts with the same:
// then they are taken from the older ones.
func (w *watch) halve(list []*envoy.Resource) {
	n := len(list)
	for _, p := range w.parts {
		n += len(p)
	}
	if n > 2*(w.names.Len()+w.held.Outbound.Len()+w.held.Inbound.Len()+1) {
		anew := make(map[string]struct{}, len(list))
		for _, r := range list {
			anew[r.Name] = struct{}{}
		}
		var left [][]*envoy.Resource
		for _, p := range w.parts {
			if p = slices.DeleteFunc(slices.Clone(p), func(r *envoy.Resource) bool { _, ok := anew[r.Name]; return ok }); len(p) > 0 {
				left = append(left, p)
			}
		}
		w.parts = left
	}
	half := len(list) / 2
	w.parts = append(w.parts, list[:half], list[half:])
}

// reject remembers what the client would not take.
func (w *watch) reject(r *envoy.Resource) {
	if w.rejected == nil {
		w.rejected = map[string][]string{}
	}
	all := append(w.rejected[r.Name], r.Version)
	w.rejected[r.Name] = all[max(0, len(all)-maxRejections):]
}

// has tells whether the client was last sent this very version.
func (w *watch) has(r *envoy.Resource) bool {
	is := w.current(r.Name)
	return is != nil && is.Version == r.Version
}

// current is what the client was last sent of that name, or nil.
func (w *watch) current(name string) *envoy.Resource {
	if r, ok := w.behind[name]; ok {
		return r
	}
	if !w.whole() && !w.names.Has(name) {
		return nil
	}
	return w.held.Get(name)
}

// isRejected tells that the client would not take this very version.
func (w *watch) isRejected(r *envoy.Resource) bool {
	return slices.Contains(w.rejected[r.Name], r.Version)
}

// resources gives what the client has, by name; route configurations with their virtual hosts, also those that came by themselves.
func (w *watch) resources() []*envoy.Resource {
	var list []*envoy.Resource
	for r := range w.held.All {
		if _, other := w.behind[r.Name]; !other && (w.whole() || w.names.Has(r.Name)) {
			list = append(list, r)
		}
	}
	for _, r := range w.behind {
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
	slices.SortFunc(list, before)
	return list
}
