package session

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Debt is a range of revisions that a client does not have in force.
type Debt struct {
	From, To uint64
	Since    time.Time // the later of when the first of them was published and when the client connected
	Rejected bool      // the client has rejected a resource, and has not acknowledged a later version of it
	Type     string    // short name of the type of the last rejection
	Message  string    // of the last rejection
	// Awaits is a name that the client awaits because of the debt, and Why is what is missing. Empty if nothing is known.
	Awaits Reference
	Why    string
}

// Owed is what a client owes of a revision.
type Owed struct {
	Concerned bool // the client was or may be sent something because of the revision
	Owes      bool // the client does not have it in force
	Forgotten bool // it is no longer known whether the revision concerned the client
	Debt      Debt // the oldest debt, or the oldest one with a rejection
}

// Debts records which revisions concerned a client and which of them it does not have in force. Its methods are safe
// for concurrent use; only the session changes it.
type Debts struct {
	mu        sync.Mutex // guards what Owed and Open read; the owner of the session alone writes it
	open      []debt     // by the time at which they began
	settled   []span     // revisions that concerned the client and are in force
	forgotten uint64     // newest revision that was dropped from settled
}

// Bounds of one stream.
const (
	maxOpen    = 16
	maxSettled = 16
	maxNamed   = 32  // lists of names in a debt; beyond that it waits for all names of their types
	maxMessage = 512 // bytes of a rejection's message
)

type span struct{ from, to uint64 }

func (s span) matches(revision uint64, upto bool) bool {
	return s.from <= revision && (upto || revision <= s.to)
}

// debt is a Debt with the responses and names that it waits for. It begins with a pass, and ends when the client has
// answered all responses of the pass, and has acknowledged the named resources and all that they refer to.
type debt struct {
	Debt
	making   bool // its pass is being made
	concerns bool // the client was sent something in the pass, or must lose something, or a translation failed

	// first and last are the numbers of the first and the last response of the pass, of the types in watches.
	first, last uint64
	watches     uint64
	follows     []follow // later responses with what could not be sent in the pass
	names       []named
	all         uint64 // types of which it waits for all names
	// ahead are the clusters whose assignments were sent before the client subscribes to them. Until it has them, later
	// revisions may concern it although it does not subscribe: To is the largest number.
	ahead []string
	// looks are the types that must be compared again. Their next responses belong to the debt.
	looks      uint64
	state      uint64 // whole types, state of the world, whose last response the client has rejected
	unresolved bool   // the cohort could not be resolved: nothing was compared
	lost       bool   // the client has rejected a response whose resources are unknown
	// resumes is true for the debt of a client that names versions of an earlier stream, until all of its first requests
	// are answered. It may have any revision. guessed is true if the client has not named versions yet.
	resumes, guessed bool
	resumed          bool // resumes was true
	unowned          bool // it is the debt of oweRejected
}

// follow is a response that a debt waits for.
type follow struct {
	w      *watch
	number uint64
}

// named are resources whose names a debt waits for. The client must have in force what the resource refers to if it was
// sent in the pass, or the version that it should have now. The ones before next are settled.
type named struct {
	w      *watch
	list   []*envoy.Resource
	sent   bool
	before envoy.Union // what the client had of the type before
	next   int
}

// Owed returns what the client owes of a revision. If upto is true, it looks at all debts that begin at the revision or
// before.
func (d *Debts) Owed(revision uint64, upto bool) Owed {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := Owed{Forgotten: revision <= d.forgotten}
	for i := range d.open {
		x := &d.open[i]
		if !(span{x.From, x.To}).matches(revision, upto) {
			continue
		}
		out.Concerned = true
		if !out.Owes || x.Rejected && !out.Debt.Rejected {
			out.Owes, out.Debt = true, x.Debt
		}
	}
	for _, s := range d.settled {
		out.Concerned = out.Concerned || s.matches(revision, upto)
	}
	return out
}

// Lag reports whether the client has had a debt since before a time that it has rejected, or that it has not.
func (d *Debts) Lag(before time.Time, rejected bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.open { // the other fields are the owner's
		if x := &d.open[i]; !x.guessed && x.Rejected == rejected && x.Since.Before(before) {
			return true
		}
	}
	return false
}

// Open appends the open debts to a list.
func (d *Debts) Open(list []Debt) []Debt {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.open {
		list = append(list, d.open[i].Debt)
	}
	return list
}

// add adds a debt. Beyond maxOpen the two oldest become one, which claims more. A debt from revision 0 is the oldest.
func (d *Debts) add(x debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) >= maxOpen {
		a, b := &d.open[0], &d.open[1]
		a.From, a.To = min(a.From, b.From), max(a.To, b.To)
		if b.Rejected {
			a.Rejected, a.Type, a.Message = true, b.Type, b.Message
		}
		if a.last == 0 {
			a.first = b.first
		}
		a.last = max(a.last, b.last)
		a.watches, a.looks, a.state = a.watches|b.watches, a.looks|b.looks, a.state|b.state
		a.ahead = append(a.ahead, b.ahead...)
		a.follows, a.names, a.all = append(a.follows, b.follows...), append(a.names, b.names...), a.all|b.all
		a.unresolved, a.lost = a.unresolved || b.unresolved, a.lost || b.lost
		a.resumes, a.guessed, a.resumed = a.resumes || b.resumes, a.guessed && b.guessed, a.resumed || b.resumed
		a.unowned = a.unowned || b.unowned
		d.open = slices.Delete(d.open, 1, 2)
	}
	if x.From == 0 {
		d.open = slices.Insert(d.open, 0, x)
	} else {
		d.open = append(d.open, x)
	}
}

// remove removes an open debt. The client has it in force if settled is true; otherwise it did not concern the client.
func (d *Debts) remove(i int, settled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := span{d.open[i].From, d.open[i].To}
	if d.open = slices.Delete(d.open, i, i+1); len(d.open) == 0 {
		d.open = nil
	}
	switch n := len(d.settled); {
	case !settled:
	case x.from == 0: // a client that resumed may have had any of these before
		d.forgotten = max(d.forgotten, x.to)
	case n > 0 && d.settled[n-1].to+1 == x.from:
		d.settled[n-1].to = x.to
	default:
		if n == maxSettled {
			d.forgotten = max(d.forgotten, d.settled[0].to)
			d.settled = slices.Delete(d.settled, 0, 1)
		}
		d.settled = append(d.settled, x)
	}
}

// making returns the debt of the pass that is being made, or nil.
func (d *Debts) making() *debt {
	if n := len(d.open); n > 0 && d.open[n-1].making {
		return &d.open[n-1]
	}
	return nil
}

// reject marks a debt as rejected. The debt is no longer a guess.
func (d *Debts) reject(x *debt, w *watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x.guessed = false
	x.Rejected, x.Type, x.Message = true, w.kind.Short, w.message
}

// Debts returns the debts of the session.
func (s *Session) Debts() *Debts { return &s.debts }

// Expect is called with the first request of the stream before it is taken. If the client may have an earlier stream,
// it owes all revisions from now on until it is known to have them.
func (s *Session) Expect(resumes, complete bool, now time.Time) {
	s.began = now
	if resumes || !complete {
		s.expectResumed(!resumes)
	}
}

// Known reports whether it is known if the client resumes an earlier stream.
func (s *Session) Known() bool {
	return s.resumed || s.answers || slices.ContainsFunc(s.watches, func(w *watch) bool { return w.complete })
}

func (s *Session) expectResumed(guessed bool) {
	s.debts.add(debt{
		Debt: Debt{To: math.MaxUint64, Since: s.began}, concerns: true, resumes: true, guessed: guessed, resumed: true,
	})
}

// noteResumed begins the debt of a client that resumes, or ends one that was only guessed.
func (s *Session) noteResumed(before bool, w *watch) {
	i := slices.IndexFunc(s.debts.open, func(d debt) bool { return d.resumes })
	switch {
	case s.resumed && !before && i < 0:
		s.expectResumed(false)
	case s.resumed && i >= 0:
		s.debts.mu.Lock()
		s.debts.open[i].guessed = false
		s.debts.mu.Unlock()
	case i >= 0 && s.debts.open[i].guessed && w.complete:
		s.debts.remove(i, false)
	}
}

// beginPass begins the debt of a pass for a push, which is compared after the revision since.
func (s *Session) beginPass(p *Push, since uint64, unresolved bool) {
	s.endPass()
	if s.published.Before(p.Queued) {
		s.published = p.Queued
	}
	x := debt{Debt: Debt{From: max(p.First, since+1), To: p.Snapshot.Revision, Since: p.Queued}, making: true}
	x.unresolved, x.concerns = unresolved, unresolved
	i := slices.IndexFunc(s.debts.open, func(d debt) bool { return d.unresolved })
	switch {
	case i >= 0: // everything is compared now, or nothing again
		s.debts.renew(i, x)
	case x.From <= x.To:
		s.debts.add(x)
	}
}

// renew makes an open debt belong to another pass too.
func (d *Debts) renew(i int, pass debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.open[i]
	x.making, x.unresolved = true, pass.unresolved
	x.From, x.To = min(x.From, pass.From), max(x.To, pass.To)
	d.open = append(slices.Delete(d.open, i, i+1), x)
}

// endPass ends the pass: all of it was sent.
func (s *Session) endPass() {
	if x := s.debts.making(); x != nil {
		if x.making = false; !x.concerns {
			s.debts.remove(len(s.debts.open)-1, false)
		}
	}
	s.settle()
}

// await records what keeps a debt open.
func (d *Debts) await(x *debt, r Reference, why string) {
	if x.Awaits == r && x.Why == why {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x.Awaits, x.Why = r, why
}

// owe records the response that was made last. It belongs to the pass, and to debts that look at its type. before is
// what the client had of the type.
func (s *Session) owe(w *watch, resources []*envoy.Resource, before envoy.Union) {
	if w.fresh < s.nonces && !w.whole() && slices.ContainsFunc(resources, func(r *envoy.Resource) bool { return before.Get(r.Name) == nil }) {
		w.fresh = s.nonces
	}
	for i := range s.debts.open {
		switch x := &s.debts.open[i]; {
		case x.making || x.resumes:
			if x.concerns = true; x.first == 0 {
				x.first = s.nonces
			}
			x.last = s.nonces
			x.watches |= w.bit
		case x.looks&w.bit != 0:
			x.follows = append(x.follows, follow{w, s.nonces})
		default:
			continue
		}
		if s.leads(w) && len(resources) > 0 {
			x := &s.debts.open[i]
			x.names = append(x.names, named{w: w, list: resources, sent: true, before: before})
		}
	}
}

// leads reports whether resources of a type make the client subscribe to others.
func (s *Session) leads(w *watch) bool {
	switch w.kind.URL {
	case envoy.ClusterType, envoy.ListenerType, envoy.ExtensionType:
		return true
	case envoy.RouteType:
		return s.profile.Named || s.divided
	}
	return false
}

// oweAhead records that the assignments of clusters were sent before the client subscribes to them.
func (s *Session) oweAhead(clusters []string) {
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	for i := range s.debts.open {
		if x := &s.debts.open[i]; x.making || x.resumes {
			x.ahead, x.To = append(x.ahead, clusters...), math.MaxUint64
		}
	}
}

// oweNames records resources that the pass removes, or does not send because the client rejected them.
func (s *Session) oweNames(w *watch, list []*envoy.Resource, rejected bool) {
	if len(list) == 0 {
		return
	}
	for i := range s.debts.open {
		x := &s.debts.open[i]
		if !x.making && !x.resumes {
			continue
		}
		x.concerns = true
		x.names = append(x.names, named{w: w, list: list})
		if rejected {
			s.debts.reject(x, w)
		}
	}
}

// oweEarlier makes the pass wait for what the client lacks of a type although it was sent, if the pass is for several
// revisions: one may have changed a resource, and a later one may have changed it back to what the client lacks.
func (s *Session) oweEarlier(w *watch) {
	x := s.debts.making()
	if x == nil || x.From >= x.To {
		return
	}
	if w.answered < w.newest {
		if x.concerns = true; x.first == 0 || x.first > w.answered {
			x.first = w.answered + 1
		}
		x.last = max(x.last, w.newest)
		x.watches |= w.bit
	}
	var refused []*envoy.Resource
	for name := range w.rejected {
		if is := w.current(name); is != nil && w.isRejected(is) {
			refused = append(refused, is)
		}
	}
	s.oweNames(w, refused, true)
	if w.refusedState != 0 {
		s.oweState(w)
	}
	for i := range s.debts.open[:len(s.debts.open)-1] {
		d := &s.debts.open[i]
		for _, l := range d.names {
			if l.w == w {
				x.concerns = true
				x.names = append(x.names, l)
			}
		}
		if (d.looks|d.all)&w.bit != 0 || d.lost && d.watches&w.bit != 0 {
			x.concerns = true
			x.looks |= d.looks & w.bit
			x.all |= d.all & w.bit
			x.lost = x.lost || d.lost
		}
	}
}

// oweState records that the pass does not send a whole state because the client rejected it.
func (s *Session) oweState(w *watch) {
	for i := range s.debts.open {
		if x := &s.debts.open[i]; x.making || x.resumes {
			x.concerns = true
			x.state |= w.bit
			s.debts.reject(x, w)
		}
	}
}

// oweFailed records that a translation failed in the pass.
func (s *Session) oweFailed(w *watch) {
	for i := range s.debts.open {
		if x := &s.debts.open[i]; x.making || x.resumes {
			x.concerns = true
			x.looks |= w.bit
		}
	}
}

// look makes all open debts wait until a type has been compared again.
func (s *Session) look(w *watch) {
	for i := range s.debts.open {
		s.debts.open[i].looks |= w.bit
	}
}

// noteAnswer records that the client has answered the response with a nonce and all earlier ones of its type. taken is
// a rejected response if it was still recorded.
func (s *Session) noteAnswer(w *watch, nonce string, taken *delivery, v *Verdict) {
	n, before := s.numberOf(nonce), w.answered
	if n == 0 || n > w.newest {
		return
	}
	s.answers = true
	w.answered = max(w.answered, n)
	if v.Kind != Rejected {
		if n > w.refusedState {
			w.refusedState = 0
		}
		return
	}
	w.message = strings.Clone(strings.ToValidUTF8(v.Message[:min(len(v.Message), maxMessage)], ""))
	whole := w.whole() && !s.delta
	if !whole && taken != nil && taken.empty() {
		return // the client lacks nothing because of it
	}
	if whole {
		w.refusedState = max(w.refusedState, n)
	}
	owned, all := false, false
	for i := range s.debts.open {
		x := &s.debts.open[i]
		owns := x.watches&w.bit != 0 && x.first <= n && n <= x.last ||
			slices.ContainsFunc(x.follows, func(f follow) bool { return f.w == w && f.number == n })
		removes := taken != nil && len(taken.removed) > 0 && slices.ContainsFunc(x.names, func(l named) bool { return l.w == w })
		switch {
		case whole:
			// Earlier responses that the client has not answered were replaced by this one.
			if owns || x.watches&w.bit != 0 && x.first <= n && x.last > before {
				owned = true
				x.state |= w.bit
				s.debts.reject(x, w)
			}
		case taken != nil && taken.part: // its names are owed already
			owned = owned || x.all&w.bit != 0 || x.lost && (x.unowned || x.watches&w.bit != 0)
			for _, l := range x.names {
				if l.w != w {
					continue
				}
				owned = owned || slices.ContainsFunc(l.list[l.next:], func(r *envoy.Resource) bool { return r == taken.resources[0] })
				if slices.ContainsFunc(l.list[l.next:], func(r *envoy.Resource) bool { return w.isRejected(r) }) {
					s.debts.reject(x, w)
				}
			}
		case owns || removes:
			owned, all = true, all || x.From == 0
			x.lacks(w, taken)
			s.debts.reject(x, w)
		}
	}
	if !all && (taken != nil || n > before) && (!owned || n <= w.fresh) {
		s.oweRejected(w, taken, whole)
	}
}

// lacks makes a debt wait for what the client lacks because it has rejected a response. taken is the response, or nil
// if it is no longer recorded.
func (x *debt) lacks(w *watch, taken *delivery) {
	switch {
	case taken == nil || len(taken.removed) > 0 || taken.unknown:
		x.lost = true
	case x.lost: // the debt does not end in any case
	case len(x.names) >= maxNamed:
		x.all |= w.bit
	default:
		x.names = append(x.names, named{w: w, list: taken.resources})
	}
}

// oweRejected makes the client owe a rejected response that belongs to no debt, or whose resources may also be of older
// revisions than its debts: a part of its first configuration, or the answer to a request. Any revision up to the
// newest one that the client was sent may have made the rejected resources. All such responses are one debt.
func (s *Session) oweRejected(w *watch, taken *delivery, whole bool) {
	i := slices.IndexFunc(s.debts.open, func(d debt) bool { return d.unowned })
	if i < 0 {
		since := s.began
		if s.published.After(since) {
			since = s.published
		}
		s.debts.add(debt{Debt: Debt{To: s.shown, Since: since}, concerns: true, unowned: true})
		i = 0
	}
	x := &s.debts.open[i]
	if whole {
		x.state |= w.bit
	} else {
		x.lacks(w, taken)
	}
	s.debts.mu.Lock()
	x.To = max(x.To, s.shown)
	s.debts.mu.Unlock()
	s.debts.reject(x, w)
}

// numberOf returns the number of the response with a nonce, or 0 for other nonces.
func (s *Session) numberOf(nonce string) uint64 {
	text, ok := strings.CutPrefix(nonce, s.prefix)
	if !ok || text == "" {
		return 0
	}
	n := parse36(text)
	if n > s.nonces {
		return 0
	}
	return n
}

// parse36 returns a number in base 36, or 0 if the text is none. It makes no error, because clients may send anything.
func parse36(text string) (n uint64) {
	if len(text) > 12 { // 36^12 fits
		return 0
	}
	for _, c := range []byte(text) {
		switch {
		case c >= '0' && c <= '9':
			n = n*36 + uint64(c-'0')
		case c >= 'a' && c <= 'z':
			n = n*36 + uint64(c-'a'+10)
		default:
			return 0
		}
	}
	return n
}
