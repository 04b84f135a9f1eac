package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/registry"
)

// departure is what a proxy owed when its last stream ended. It also owes all later revisions.
type departure struct {
	proxy    *node.Proxy
	known    bool      // the snapshot had its workload, or snapshots have no such workloads
	workload *workload // of the snapshot; nil if it had none
	after    uint64    // newest snapshot at that time
	owed     []session.Debt
	at       time.Time
	// back is when the proxy began a stream that resumes no earlier one and whose first configuration it has not
	// answered. It is zero if there is no such stream.
	back time.Time
}

// workload identifies a workload. A workload that is deleted and written again has another value of created.
type workload struct {
	key     registry.WorkloadKey
	created time.Time
}

// workloadOf returns the workload of a proxy in a snapshot, or nil.
func workloadOf(w World, s *snapshot.Snapshot, p *node.Proxy) *workload {
	if s == nil {
		return nil
	}
	if is := w.Workload(s, p); is != nil {
		return &workload{is.WorkloadKey, is.Created}
	}
	return nil
}

// equal reports whether two workloads are the same. They may be nil.
func (w *workload) equal(o *workload) bool {
	return w != nil && o != nil && w.key == o.key && w.created.Equal(o.created)
}

// departures are the proxies whose streams have ended. Its methods are called with server.mu held.
type departures struct {
	by map[departedProxy]departure
	// lostUntil is when the last departure that found no room would have been forgotten, or would have become silent.
	lostUntil time.Time
	swept     time.Time
}

// departedProxy identifies a proxy. Two clusters may have proxies of one ID.
type departedProxy struct{ id, cluster string }

func departedOf(p *node.Proxy) departedProxy { return departedProxy{p.ID, p.Cluster} }

const (
	// departureTime is how long the server awaits a proxy that has left and whose workload is in no snapshot. A proxy
	// that has come back may take as long to answer its first configuration.
	departureTime = time.Minute
	// awayTime is how long the server awaits a proxy that has left and whose workload is in the snapshot. After that
	// the proxy is silent: it may run on with what it had, or may never come back.
	awayTime = 10 * time.Minute
	// maxDepartures bounds the recorded departures.
	maxDepartures = 4096
	// maxOwed bounds the debts of one departure. Beyond it, they become one debt, which claims more.
	maxOwed = 64
)

// add records a departure. gone reports whether a departure may be forgotten.
func (d *departures) add(x departure, gone func(*departure) bool) {
	k := departedOf(x.proxy)
	if d.sweep(x.at, gone); len(d.by) >= maxDepartures {
		if _, ok := d.by[k]; !ok {
			until := x.at.Add(departureTime)
			if x.workload != nil {
				until = x.at.Add(awayTime)
			}
			if d.lostUntil.Before(until) {
				d.lostUntil = until
			}
			return
		}
	}
	if d.by == nil {
		d.by = map[departedProxy]departure{}
	}
	if before, ok := d.by[k]; ok { // a stream that had not caught up
		x.after, x.owed = min(x.after, before.after), append(x.owed, before.owed...)
		if len(x.owed) > maxOwed {
			all := x.owed[0]
			for _, o := range x.owed {
				all.From, all.To = min(all.From, o.From), max(all.To, o.To)
			}
			x.owed = []session.Debt{all}
		}
	}
	d.by[k] = x
}

// sweep forgets the departures for which gone returns true. It does nothing within a second of the last sweep.
func (d *departures) sweep(now time.Time, gone func(*departure) bool) {
	if now.Sub(d.swept) < time.Second {
		return
	}
	d.swept = now
	maps.DeleteFunc(d.by, func(_ departedProxy, x departure) bool { return gone(&x) })
}

// has reports whether a proxy has departed.
func (d *departures) has(p *node.Proxy) bool {
	_, ok := d.by[departedOf(p)]
	return ok
}

// starts records that a departed proxy has begun a stream which resumes no earlier one.
func (d *departures) starts(p *node.Proxy, now time.Time) {
	if x, ok := d.by[departedOf(p)]; ok && x.back.IsZero() {
		x.back = now
		d.by[departedOf(p)] = x
	}
}

// ended records that a stream of a departed proxy has ended and adds no departure of its own.
func (d *departures) ended(p *node.Proxy) {
	if x, ok := d.by[departedOf(p)]; ok {
		x.back = time.Time{}
		d.by[departedOf(p)] = x
	}
}

// returned forgets the departure of a proxy that is connected again.
func (d *departures) returned(p *node.Proxy) { delete(d.by, departedOf(p)) }

// list returns the departed proxies that may owe a revision. unknown is true if there may be others.
func (d *departures) list(now time.Time, revision uint64, upto bool) (list []departure, unknown bool) {
	for _, x := range d.by {
		if revision > x.after || slices.ContainsFunc(x.owed, func(o session.Debt) bool {
			return o.From <= revision && (upto || revision <= o.To)
		}) {
			list = append(list, x)
		}
	}
	return list, now.Before(d.lostUntil)
}

// fate says whether a departed proxy is awaited.
type fate int

const (
	forgotten fate = iota // it no longer runs, or will connect as a new proxy
	awaited               // it is expected to come back
	silent                // it may run, and has been away for more than awayTime
)

// fateOf returns the fate of a departed proxy.
func (s *Server) fateOf(d *departure, latest *snapshot.Snapshot, now time.Time) fate {
	w := s.o.World
	switch {
	case d.known && latest != nil && !w.WorkloadKnown(latest, d.proxy):
		return forgotten // it will not come back
	case d.workload != nil && !d.workload.equal(workloadOf(w, latest, d.proxy)):
		return forgotten // another workload has its name
	case !d.back.IsZero() && now.Sub(d.back) > departureTime:
		return forgotten
	case !d.back.IsZero() || now.Sub(d.at) <= departureTime:
		return awaited
	case d.workload == nil:
		return forgotten
	case now.Sub(d.at) <= awayTime:
		return awaited
	}
	return silent
}

// whyStarts is the message of a proxy that has come back and owes what it owed before.
const whyStarts = "it has started again, and has not answered all of its first configuration"

// addDeparted adds the departed proxies to the proxies that owe a revision.
func (s *Server) addDeparted(p *Progress, gone []departure, latest *snapshot.Snapshot) {
	now := time.Now()
	connected := p.Owing
	for i := range gone {
		d := &gone[i]
		o := Owing{Proxy: d.proxy.ID, Cluster: d.proxy.Cluster, Since: d.at, State: Departed}
		switch f := s.fateOf(d, latest, now); {
		case f == forgotten:
			continue
		case f == silent:
			o.State = Silent
		case !d.back.IsZero():
			if slices.ContainsFunc(connected, func(c Owing) bool { return c.Name() == o.Name() }) {
				continue
			}
			o.State, o.Message = Behind, whyStarts
		}
		p.Concerned++
		p.Owing = append(p.Owing, o)
	}
}

// depart records what a stream owes when it is removed, unless its proxy has another stream that is complete. Other
// streams of the proxy then owe it too. The caller holds mu.
func (s *Server) depart(c *conn, d departure) {
	if s.count[c.proxy.ID] > 0 {
		for _, other := range s.conns {
			if departedOf(other.proxy) != departedOf(c.proxy) {
				continue
			}
			if other.complete {
				return
			}
			other.post(func(*session.Session) { other.returnsLate() })
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
	s.departures.add(d, func(x *departure) bool { return s.fateOf(x, s.latest, d.at) == forgotten })
}

// departs returns what the stream owes when it ends. It returns false if the proxy is not expected to come back, or has
// no configuration yet. The owner calls it.
func (c *conn) departs() (departure, bool) {
	if !c.profile.workload {
		return departure{}, false
	}
	w, newest := c.server.o.World, c.server.newest()
	d := departure{proxy: c.proxy, at: time.Now(), owed: c.session.Debts().Open(nil)}
	if !c.joined && len(d.owed) == 0 {
		return d, false
	}
	d.known, d.workload = knownIn(w, newest, c.proxy), workloadOf(w, newest, c.proxy)
	return d, d.known || !c.hadWorkload
}

// knownIn is World.WorkloadKnown for a snapshot that may be nil.
func knownIn(w World, s *snapshot.Snapshot, p *node.Proxy) bool {
	return s != nil && w.WorkloadKnown(s, p)
}

// returning forgets the departure of the proxy once it is known what its new stream owes. If the stream resumes no
// earlier one, the proxy owes what it owed until it has answered its first configuration, because it may reject the
// same resources again.
func (c *conn) returning() {
	if c.returned || !c.session.Known() {
		return
	}
	s := c.server
	s.mu.Lock()
	_, missing := s.missing.by[departedOf(c.proxy)]
	left := missing || s.departures.has(c.proxy)
	s.mu.Unlock()
	arrived := c.session.Resumed() || left && c.arrives()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !arrived {
		s.startMissing(c.proxy)
	}
	if !arrived && s.departures.has(c.proxy) {
		s.departures.starts(c.proxy, time.Now())
		return
	}
	c.returned, c.complete = true, c.complete || arrived
	s.resumed = s.resumed || c.session.Resumed() && c.profile.workload
	s.departures.returned(c.proxy)
	s.missing.forget(departedOf(c.proxy))
}

// returnsLate is called when an earlier stream of the proxy has ended after this one began.
func (c *conn) returnsLate() {
	c.server.mu.Lock()
	c.returned = false
	c.server.mu.Unlock()
	c.returning()
}

// arrives reports whether the client has answered its first configuration. That of an Envoy always has clusters and
// listeners.
func (c *conn) arrives() bool {
	var types []string
	if c.profile.warms {
		types = []string{envoy.ClusterType, envoy.ListenerType}
	}
	return c.joined && c.session.Arrived(types)
}

// noteArrival records whether the stream is complete. Its debts then include what the proxy owed on an earlier stream,
// to this server or to another one.
func (c *conn) noteArrival() {
	arrived := c.session.Resumed() || c.arrives()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.complete, c.noting = c.complete || arrived, false
}

// Departed returns the names, as of Owing.Name, of the proxies that have departed and not come back, and of the missing
// proxies. It returns the first ones in order that are greater than after, and not more than most.
func (s *Server) Departed(after string, most int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for k, x := range s.departures.by {
		if name := proxyName(k.id, k.cluster); name > after && x.back.IsZero() {
			names = append(names, name)
		}
	}
	for k := range s.missing.by {
		if name := proxyName(k.id, k.cluster); name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), most)]
}

// Forget forgets departed and missing proxies, because they were connected to another server after a time. It does not
// forget a proxy that has departed from this server since then.
func (s *Server) Forget(names []string, after time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.departures.by, func(k departedProxy, x departure) bool {
		return x.at.Before(after) && slices.Contains(names, proxyName(k.id, k.cluster))
	})
	for k, x := range s.missing.by {
		if x.since.Before(after) && slices.Contains(names, proxyName(k.id, k.cluster)) {
			s.missing.forget(k)
		}
	}
}

// Connected returns the proxies of a list that have a complete stream here: it resumes an earlier stream, or the proxy
// has answered its first configuration. The debts of such a stream include what the proxy may owe to another server.
// Names are as of Owing.Name. Connected makes the owners of the other streams of these proxies look whether they are
// complete, so a later call may return the proxies.
func (s *Server) Connected(names []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := make(map[string]bool, len(names))
	for _, name := range names {
		here[name] = false
	}
	for _, c := range s.conns {
		name := proxyName(c.proxy.ID, c.proxy.Cluster)
		switch _, asked := here[name]; {
		case !c.profile.workload || !asked:
		case c.complete:
			here[name] = true
		case !c.noting:
			c.noting = true
			c.post(func(*session.Session) { c.noteArrival() })
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !here[name] })
}
