package xds

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// OwingState says why a proxy does not have a revision in force.
type OwingState int

// States of a proxy that does not have a revision in force.
const (
	Behind   OwingState = iota // it has not been sent or has not acknowledged everything
	Rejected                   // it has rejected something
	Departed                   // its stream ended before, and it has not come back
	Silent                     // it departed long ago, and the newest snapshot has its workload
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
	s.addDeparted(&p, gone, latest)
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
