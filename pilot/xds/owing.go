package xds

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// OwingState says why a proxy does not have a revision in force.
type OwingState int

// States of a proxy that does not have a revision in force.
const (
	Behind   OwingState = iota // it has not been sent or has not acknowledged everything
	Rejected                   // it has rejected something
	Departed                   // its stream ended before, and it has not come back
)

// Owing is a proxy that does not have a revision in force.
type Owing struct {
	Proxy   string // ID of the proxy
	Cluster string // ID of its cluster
	Conn    string // ID of the stream; empty if it has ended
	Since   time.Time
	State   OwingState
	Type    string // short name of the type that is rejected or awaited; may be empty
	Message string // of the rejection, or the name that is awaited and why it is missing
	// Together is true if the proxy was sent several revisions at once, so that another one may be what it rejects.
	Together bool
}

// Name returns a name of the proxy that no proxy of another cluster has.
func (o *Owing) Name() string { return proxyName(o.Proxy, o.Cluster) }

func proxyName(id, cluster string) string {
	if cluster == "" {
		return id
	}
	return id + "/" + cluster
}

// Progress describes how far the connected proxies are with a revision.
type Progress struct {
	// Published is true if the snapshot of the revision, or a newer one, was offered to all streams.
	Published bool
	Connected int // number of streams of proxies
	Concerned int // number of streams and departed proxies that the revision concerned or may concern
	Settled   int // the ones of Concerned that have it in force
	// Counted is false if some stream no longer remembers whether the revision concerned it.
	Counted bool
	// Unknown is true if too many proxies have departed lately to tell which of them lack the revision.
	Unknown bool
	// Resumed is true if a client of an earlier process, or of another server, has connected since the start.
	Resumed bool
	Owing   []Owing // the longest first
	More    int     // number of further ones
}

// InForce reports whether every proxy that the revision concerns is known to have it in force.
func (p *Progress) InForce() bool {
	return p.Published && !p.Unknown && p.Settled == p.Concerned
}

// Progress returns how far the proxies are with a revision, with at most most proxies that owe it. If upto is true, it
// looks at everything that proxies owe of the revision and of earlier ones.
//
// A push passes from the groups to the streams and from there to the sessions. It is always in the next place before it
// leaves the last, and Progress reads the places in that order. So it misses no push.
func (s *Server) Progress(revision uint64, upto bool, most int) Progress {
	s.mu.Lock()
	p := Progress{Published: s.latest != nil && revision <= s.offered.Load(), Counted: !upto}
	streams := make([]member, 0, len(s.conns))
	for _, c := range s.conns {
		if c.profile.workload {
			streams = append(streams, member{c, c.group})
		}
	}
	p.Connected, p.Resumed = len(streams), s.resumed
	latest := s.latest
	gone, unknown := s.departures.list(time.Now(), revision, upto)
	s.mu.Unlock()
	p.Unknown = unknown
	groups := map[*subscriberGroup]offered{}
	for _, m := range streams {
		if _, ok := groups[m.group]; !ok && m.group != nil {
			groups[m.group] = m.group.unchecked()
		}
	}
	for _, m := range streams {
		o, owes, concerned := m.conn.owing(groups[m.group], revision, upto, &p)
		if !concerned {
			continue
		}
		if p.Concerned++; owes {
			p.Owing = append(p.Owing, o)
		} else {
			p.Settled++
		}
	}
	for _, d := range gone {
		if d.known && latest != nil && !s.o.World.WorkloadKnown(latest, d.proxy) {
			continue // it will not come back
		}
		p.Concerned++
		p.Owing = append(p.Owing, Owing{Proxy: d.proxy.ID, Cluster: d.proxy.Cluster, Since: d.at, State: Departed})
	}
	slices.SortFunc(p.Owing, func(a, b Owing) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name(), b.Name())) })
	if most = max(most, 0); len(p.Owing) > most {
		p.Owing, p.More = slices.Clip(p.Owing[:most]), len(p.Owing)-most
	}
	return p
}

// lagTime is how long a proxy may lack configuration until a metric counts it.
const lagTime = 30 * time.Second

// lagging returns the number of streams of proxies that have lacked configuration for long, because they have rejected
// it or not.
func (s *Server) lagging(rejected bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := time.Now().Add(-s.lagTime)
	for _, c := range s.conns {
		if c.profile.workload && c.session.Debts().Lag(before, rejected) {
			n++
		}
	}
	return n
}

// Connected returns the proxies of a list that have a stream here. Names are as of Owing.Name.
func (s *Server) Connected(names []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := map[string]bool{}
	for _, c := range s.conns {
		if c.profile.workload {
			here[proxyName(c.proxy.ID, c.proxy.Cluster)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !here[name] })
}

// member is a stream with its group at one moment.
type member struct {
	conn  *conn
	group *subscriberGroup // nil if it has none
}

// offered is a range of revisions that were offered and not compared yet. It is empty if from is 0.
type offered struct {
	from, to uint64
	since    time.Time
}

func offeredBy(p *session.Push) offered {
	if p == nil || p.First > p.Snapshot.Revision {
		return offered{}
	}
	return offered{p.First, p.Snapshot.Revision, p.Queued}
}

func (o offered) matches(revision uint64, upto bool) bool {
	return o.from != 0 && o.from <= revision && (upto || revision <= o.to)
}

// or returns a range that includes both.
func (o offered) or(x offered) offered {
	switch {
	case o.from == 0:
		return x
	case x.from == 0:
		return o
	}
	if x.since.Before(o.since) {
		o.since = x.since
	}
	return offered{min(o.from, x.from), max(o.to, x.to), o.since}
}

// unchecked returns the revisions that the group has been offered and has not told its members about.
func (g *subscriberGroup) unchecked() offered {
	g.mu.Lock()
	defer g.mu.Unlock()
	return offeredBy(g.current).or(offeredBy(g.pendingPush))
}

// owing returns what a stream owes of a revision, and whether it owes anything and the revision concerns it. group is
// what its group has not checked.
func (c *conn) owing(group offered, revision uint64, upto bool, p *Progress) (o Owing, owes, concerned bool) {
	o = Owing{Proxy: c.proxy.ID, Cluster: c.proxy.Cluster, Conn: c.id}
	owe := func(since time.Time) {
		if !owes || since.Before(o.Since) {
			o.Since = since
		}
		owes = true
	}
	if group.matches(revision, upto) {
		owe(group.since)
	}
	if waiting := c.waiting(); waiting.matches(revision, upto) {
		owe(waiting.since)
	}
	x := c.session.Debts().Owed(revision, upto)
	p.Counted = p.Counted && !x.Forgotten
	if x.Owes {
		owe(x.Debt.Since)
		switch d := &x.Debt; {
		case d.Rejected:
			o.State, o.Type, o.Message, o.Together = Rejected, d.Type, d.Message, d.From < d.To
		case d.Why != "":
			o.Type, o.Message = envoy.ShortType(d.Awaits.TypeURL), fmt.Sprintf("it awaits %s: %s", d.Awaits.Name, d.Why)
		}
	}
	return o, owes, owes || x.Concerned
}

// waiting returns the revisions that the stream has been offered and has not begun to compare. A stream that waits for
// its first configuration is sent the one that was the newest when it connected, and then these.
func (c *conn) waiting() offered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return offeredBy(c.pendingPush).or(offeredBy(c.taken))
}

// departure is what a proxy owed when its last stream ended. It also owes all later revisions.
type departure struct {
	proxy *node.Proxy
	known bool   // the snapshot had its workload
	after uint64 // newest snapshot at that time
	owed  []session.Debt
	at    time.Time
}

// departures are the proxies whose streams have ended lately. Its methods are called with server.mu held.
type departures struct {
	by map[departedProxy]departure
	// lostUntil is when the departures that found no room would have been forgotten.
	lostUntil time.Time
	swept     time.Time
}

// departedProxy identifies a proxy. Two clusters may have proxies of one ID.
type departedProxy struct{ id, cluster string }

const (
	// departureTime is how long a proxy that has left is expected to come back.
	departureTime = time.Minute
	// maxDepartures bounds the proxies of which it is known what they lack.
	maxDepartures = 4096
)

// add records a departure.
func (d *departures) add(x departure) {
	k := departedProxy{x.proxy.ID, x.proxy.Cluster}
	if d.sweep(x.at); len(d.by) >= maxDepartures {
		if _, ok := d.by[k]; !ok {
			d.lostUntil = x.at.Add(departureTime)
			return
		}
	}
	if d.by == nil {
		d.by = map[departedProxy]departure{}
	}
	if before, ok := d.by[k]; ok { // a stream that had not caught up
		x.after, x.owed = min(x.after, before.after), append(x.owed, before.owed...)
	}
	d.by[k] = x
}

// sweep forgets the departures that are too old, at most once a second unless there is no room.
func (d *departures) sweep(now time.Time) {
	if len(d.by) < maxDepartures && now.Sub(d.swept) < time.Second {
		return
	}
	d.swept = now
	for k, x := range d.by {
		if now.Sub(x.at) > departureTime {
			delete(d.by, k)
		}
	}
}

// returned forgets the departure of a proxy that is connected again.
func (d *departures) returned(p *node.Proxy) { delete(d.by, departedProxy{p.ID, p.Cluster}) }

// list returns the departed proxies that may owe a revision. unknown is true if there may be others.
func (d *departures) list(now time.Time, revision uint64, upto bool) (list []departure, unknown bool) {
	for _, x := range d.by {
		if now.Sub(x.at) > departureTime {
			continue
		}
		if revision > x.after || slices.ContainsFunc(x.owed, func(o session.Debt) bool {
			return o.From <= revision && (upto || revision <= o.To)
		}) {
			list = append(list, x)
		}
	}
	return list, now.Before(d.lostUntil)
}

// depart records what a stream owes when it is removed, unless its proxy has another one. The caller holds mu.
func (s *Server) depart(c *conn, d departure) {
	if s.count[c.proxy.ID] > 0 {
		for _, other := range s.conns {
			if other.returned && other.proxy.ID == c.proxy.ID && other.proxy.Cluster == c.proxy.Cluster {
				return
			}
		}
	}
	if d.after = s.latest.Revision; s.offered.Load() < d.after {
		d.after = s.offered.Load()
	}
	if group := c.group; group != nil {
		if g := group.unchecked(); g.from != 0 {
			d.after = min(d.after, g.from-1)
		}
	}
	if waiting := c.waiting(); waiting.from != 0 {
		d.after = min(d.after, waiting.from-1)
	}
	s.departures.add(d)
}

// departs returns what the stream owes when it ends. It returns false if its proxy is not expected to come back, or has
// no configuration yet. The owner calls it.
func (c *conn) departs() (departure, bool) {
	if !c.profile.workload {
		return departure{}, false
	}
	newest := c.server.newest()
	d := departure{proxy: c.proxy, at: time.Now(), owed: c.session.Debts().Open(nil)}
	if !c.joined && len(d.owed) == 0 {
		return d, false
	}
	d.known = knownIn(c.server.o.World, newest, c.proxy)
	return d, d.known || !c.hadWorkload
}

func knownIn(w World, s *snapshot.Snapshot, p *node.Proxy) bool {
	return s != nil && w.WorkloadKnown(s, p)
}

// unseen returns the first revision that the stream may not have been offered although its group or the Server has it,
// or 0. The owner calls it before it takes a push, so that a revision that it misses is in the push.
func (c *conn) unseen() (group, server uint64) {
	server = c.server.offered.Load() + 1
	if c.group != nil {
		group = c.group.unchecked().from
	}
	return group, server
}

// owes returns a push whose First includes all revisions that its snapshot may bring to the stream.
func (c *conn) owes(p *session.Push, group, server uint64) *session.Push {
	first := p.First
	if group != 0 {
		first = min(first, group)
	}
	if p.Snapshot.Revision >= server {
		first = min(first, server)
	}
	if first = max(first, c.session.Revision()+1); first >= p.First {
		return p
	}
	wider := *p
	wider.First = first
	return &wider
}

// returning forgets the departure of the proxy once it is known what its new stream owes.
func (c *conn) returning() {
	if c.returned || !c.session.Known() {
		return
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.returned = true
	s.resumed = s.resumed || c.session.Resumed() && c.profile.workload
	s.departures.returned(c.proxy)
}
