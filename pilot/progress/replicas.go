package progress

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Replicas are the other replicas: a *replicas.Replicas.
type Replicas interface {
	// Affected reports whether a snapshot may have other members than the one before.
	Affected(s *snapshot.Snapshot) bool
	// Members returns the other replicas, whether they are ready or not.
	Members() []replicas.Member
	// AskMembers asks all members for a page. It leaves out the ones that refuse connections and are not ready.
	AskMembers(ctx context.Context, question string) []replicas.Answer
}

const (
	// departureTime is how long the proxies of a replica that has ended may take to connect again.
	departureTime = 60 * time.Second
	askTime       = 2 * time.Second  // for an answer of all replicas
	maxMoved      = 100              // proxies of one question that may have moved
	movedTime     = 20 * time.Second // between two calls of forgetMoved
)

// InForcePage and HistoryPage are the names of the debug pages by which replicas ask each other.
const (
	InForcePage = "inforce"
	HistoryPage = "history"
)

// members remembers which replicas were ready. The lock of the Tracker guards it.
type members struct {
	served map[string]time.Time // replicas that are ready, and since when
	left   map[string]time.Time // replicas that were ready, and when they ended
	ended  bool                 // a replica has ended since Streams.Expect was called
}

func newMembers() members {
	return members{served: map[string]time.Time{}, left: map[string]time.Time{}}
}

// update takes the current members.
func (m *members) update(now []replicas.Member, at time.Time) {
	ready := map[string]bool{}
	for _, x := range now {
		if x.Ready {
			ready[x.Name] = true
			if _, known := m.served[x.Name]; !known {
				m.served[x.Name] = at
			}
		}
	}
	for name := range m.served {
		if !ready[name] {
			m.left[name], m.ended = at, true
			delete(m.served, name)
		}
	}
}

// runs takes how long a replica that answers has been running. If it served before that, it has started again. If it
// has run on since it was no ready member any more, it has not ended: it is taken for one that serves.
func (m *members) runs(name string, uptime time.Duration, at time.Time) {
	const inexact = time.Second // the answer was on its way
	started := at.Add(-uptime)
	since, known := m.served[name]
	switch left, is := m.left[name]; {
	case known && since.Add(inexact).Before(started):
		m.left[name], m.served[name], m.ended = started, started, true
	case is && started.Add(inexact).Before(left):
		delete(m.left, name)
		m.served[name] = left
	}
}

// gone returns the replicas whose proxies may be connected to none, and for how many seconds.
func (m *members) gone(at time.Time, most time.Duration) map[string]float64 {
	out := map[string]float64{}
	for name, since := range m.left {
		if at.Sub(since) > most {
			delete(m.left, name)
			continue
		}
		out[name] = at.Sub(since).Seconds()
	}
	return out
}

// gone returns the replicas that ended or started again lately, and for how many seconds. answers are of the
// others.
func (t *Tracker) gone(answers []part) map[string]float64 {
	now := t.o.Clock.Now()
	defer t.expect()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.members.update(t.o.Replicas.Members(), now)
	for _, p := range answers {
		t.members.runs(p.name, time.Duration(p.Uptime*float64(time.Second)), now)
	}
	return t.members.gone(now, t.o.Stopping+departureTime)
}

// expect makes the streams expect the proxies of a replica that has ended since the last call.
func (t *Tracker) expect() {
	t.mu.Lock()
	ended := t.members.ended
	t.members.ended = false
	if ended {
		t.expected, t.asked = t.o.Clock.Now(), false
	}
	t.mu.Unlock()
	if ended {
		t.o.Streams.Expect()
		t.awake()
	}
}

// expects reports, once, whether proxies have become expected.
func (t *Tracker) expects() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := !t.asked && !t.expected.IsZero()
	t.asked = true
	return is
}

// movedDelay returns the time until the other replicas are asked where proxies are. It is short while proxies are
// missing after a start or the end of a replica, because most of them are connected to the others.
func (t *Tracker) movedDelay() time.Duration {
	_, n := t.o.Streams.Missing(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == 0 || n > 0 && t.o.Clock.Now().Sub(t.expected) < departureTime {
		return askTime
	}
	return movedTime
}

// Ask returns the answer of all replicas.
func (t *Tracker) Ask(ctx context.Context, q Question) Answer {
	own := t.answer(q, nil)
	if t.o.Replicas == nil || own.State == Superseded || own.State == Invalid || own.unread {
		t.account(&own, []part{{t.o.Name, own}})
		return t.explain(own)
	}
	if !q.exact() && !own.unneeded { // else each of the others answers for the version that it has read last
		if q = own.exactly(); !q.exact() {
			if own.State.Final() {
				own.State, own.Why = Unknown, "the version has no number by which other replicas know it"
			}
			return t.explain(own)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	a, left := t.ask(ctx, q, nil)
	if len(left) > 0 {
		a, _ = t.ask(ctx, q, left)
	}
	return t.explain(a)
}

// ask asks all replicas once, and merges their answers. Each of them says first which proxies of a list are connected
// to it. left are other proxies that have left a replica while they owed something.
func (t *Tracker) ask(ctx context.Context, q Question, list []string) (all Answer, left []string) {
	by := Asker{Name: t.o.Name, Uptime: t.o.Clock.Now().Sub(t.started), Proxies: list}
	others := t.o.Replicas.AskMembers(ctx, InForcePage+"?"+q.query(by))
	all = t.answer(q, list)
	parts := []part{{t.o.Name, all}}
	for _, x := range others {
		var a Answer
		err := x.Err
		if err == nil {
			if err = json.Unmarshal(x.JSON, &a); err == nil && !slices.Contains(states(), a.State) {
				err = fmt.Errorf("its answer has the state %.64q", a.State)
			}
		}
		if err != nil {
			all.Replicas = append(all.Replicas, Replica{Name: x.Name, State: Unknown, Error: err.Error()})
			continue
		}
		if a.State == Superseded && q.Generation == 0 && all.State != Superseded {
			// Contents and deletions come again. So it may have read less than this replica, not more.
			a.State, a.Why = Behind, "it has another version"
		}
		parts = append(parts, part{x.Name, a})
	}
	all.Proxies, all.Owing, all.More, all.Connected, all.Counted = Proxies{}, []Owing{}, 0, nil, true
	connected := map[string]bool{}
	for i := range parts {
		parts[i].found(connected)
	}
	for i := range parts {
		p := &parts[i]
		p.settle(connected)
		all.add(p)
		if i > 0 {
			all.Replicas = append(all.Replicas, Replica{Name: p.name, State: p.State, Why: p.Why})
			if state := worse(all.State, p.State); state != all.State || p.State == state && all.Why == NoProxy {
				all.State, all.Why = state, p.Why
			}
		} else {
			all.State, all.Why = p.State, p.Why
		}
	}
	if all.Proxies.Later > 0 && all.Proxies.Concerned == 0 {
		all.Counted = false
	} else if all.Why == connectedLater {
		all.Why = ""
	}
	for _, o := range all.Owing {
		if name := o.name(); o.State == departed && len(left) < maxMoved && !slices.Contains(list, name) {
			left = append(left, name)
		}
	}
	for _, r := range all.Replicas {
		if r.Error != "" {
			all.State = worse(all.State, Unknown)
		}
	}
	t.account(&all, parts)
	slices.SortFunc(all.Replicas, func(a, b Replica) int { return strings.Compare(a.Name, b.Name) })
	t.shorten(&all)
	all.Silent = all.State == Unknown && slices.ContainsFunc(parts, func(p part) bool { return p.Silent })
	all.Uptime, all.Lost, all.Resumed = 0, false, false
	return all, left
}

// part is the answer of one replica.
type part struct {
	name string
	Answer
}

// found adds the proxies that are connected to the replica. One that has left it since it was found there is not.
func (p *part) found(connected map[string]bool) {
	for _, name := range p.Connected {
		if !slices.ContainsFunc(p.Owing, func(o Owing) bool { return o.State == departed && o.name() == name }) {
			connected[name] = true
		}
	}
}

// settle drops the proxies that have left the replica and are connected to another one, which awaits them.
func (p *part) settle(connected map[string]bool) {
	was := len(p.Owing)
	p.Owing = slices.DeleteFunc(p.Owing, func(o Owing) bool { return o.State == departed && connected[o.name()] })
	moved := was - len(p.Owing)
	p.Proxies.Behind, p.Proxies.Concerned = p.Proxies.Behind-moved, p.Proxies.Concerned-moved
	switch {
	case moved == 0 || len(p.Owing)+p.More > 0 || !p.Silent && (p.State != Behind || p.Why != ""):
	case p.Lost:
		p.State, p.Why = Unknown, manyDeparted
	default:
		p.State, p.Why = InForce, ""
	}
}

// forgetMoved asks the other replicas which of the proxies that have left this replica are connected to them, and
// forgets the connected ones.
func (t *Tracker) forgetMoved(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, movedTime/2)
	defer cancel()
	last := ""
	for ctx.Err() == nil {
		asked := time.Now()
		names := t.o.Streams.Departed(last, maxMoved)
		if len(names) == 0 {
			return
		}
		last = names[len(names)-1]
		// Any object will do: each answer says which of the proxies are connected.
		q := Question{Key: kinds.Key{Kind: kinds.Namespace, Name: "departed"}}
		by := Asker{Name: t.o.Name, Uptime: t.o.Clock.Now().Sub(t.started), Proxies: names}
		for _, x := range t.o.Replicas.AskMembers(ctx, InForcePage+"?"+q.query(by)) {
			p := part{name: x.Name}
			if x.Err == nil && json.Unmarshal(x.JSON, &p.Answer) == nil {
				t.o.Streams.Forget(p.Connected, asked)
			}
		}
	}
}

// add adds the proxies of a replica.
func (a *Answer) add(p *part) {
	a.Proxies.Connected += p.Proxies.Connected
	a.Proxies.Concerned += p.Proxies.Concerned
	a.Proxies.InForce += p.Proxies.InForce
	a.Proxies.Rejected += p.Proxies.Rejected
	a.Proxies.Behind += p.Proxies.Behind
	a.Proxies.Later += p.Proxies.Later
	// The number of a replica leaves out proxies that connected later. This matters only if there are no others: see ask.
	a.Counted = a.Counted && (p.Counted || p.Proxies.Later > 0)
	a.More += p.More
	for _, o := range p.Owing {
		o.Replica = p.name
		a.Owing = append(a.Owing, o)
	}
	if p.State == Superseded {
		a.SupersededBy = max(a.SupersededBy, p.SupersededBy)
	}
}

// account makes an answer Unknown that may lack proxies of a process that has ended, and says why it is. parts are the
// answers of all replicas, this one first.
func (t *Tracker) account(all *Answer, parts []part) {
	if slices.Contains([]State{Superseded, Invalid}, all.State) || all.unread {
		return
	}
	gone := map[string]float64{}
	if t.o.Replicas != nil {
		gone = t.gone(parts[1:])
	}
	young, resumed := true, false
	for _, p := range parts {
		young, resumed = young && p.Uptime < departureTime.Seconds(), resumed || p.Resumed
		for name, since := range p.Gone {
			if !slices.ContainsFunc(parts, func(q part) bool { return q.name == name && q.Uptime > since+1 }) {
				gone[name] = since
			}
		}
	}
	none := all.Proxies.Connected == 0 && (all.State == InForce || all.State == WithoutEffect)
	back := young && (resumed || none) && all.Proxies.Behind+all.Proxies.Rejected == 0
	if len(gone) > 0 || back {
		all.State = worse(all.State, Unknown)
	}
	if all.State != Unknown {
		return
	}
	var away []string
	for _, r := range all.Replicas {
		if r.Error != "" {
			away = append(away, r.Name)
		}
	}
	i := slices.IndexFunc(parts, func(p part) bool { return p.State == Unknown && p.Why != "" })
	switch {
	case len(away) > 0:
		all.Why = "these replicas cannot be asked: " + strings.Join(away, ", ")
	case len(gone) > 0:
		all.Why = fmt.Sprintf("these replicas have ended or started again less than %v ago, and their proxies may be connected to none: %s",
			t.o.Stopping+departureTime, strings.Join(slices.Sorted(maps.Keys(gone)), ", "))
	case i >= 0:
		all.Why = parts[i].Why
	case back && none:
		all.Why = fmt.Sprintf("no proxy has connected yet, and no replica has been running for %v", departureTime)
	case back:
		all.Why = fmt.Sprintf("no replica has been running for %v, and proxies of an earlier process may not have connected again",
			departureTime)
	}
}
