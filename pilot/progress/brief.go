package progress

import (
	"fmt"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// Brief is what an Answer of this replica says in a line about the newest version of an object. The numbers of proxies
// are missing if the version is in force.
type Brief struct {
	State   State
	Why     string
	Proxies Proxies
}

// Briefs returns what this replica knows of the newest versions of objects. It asks the streams once for each revision
// that a proxy may lack, so it is cheap for many objects.
func (t *Tracker) Briefs(keys []kinds.Key) []Brief {
	m := t.newMany()
	list := make([]Brief, len(keys))
	for i, k := range keys {
		s := t.subject(k)
		s.many = m
		a := Answer{key: k}
		t.decide(&a, Question{Key: k}, &s)
		list[i] = Brief{State: a.State, Why: a.Why, Proxies: a.Proxies}
	}
	return list
}

// owed is what the streams owe of a revision or, with upto, of all revisions up to it.
type owed struct {
	xds.Progress
	proxies Proxies
	owing   []Owing
	more    int
	silent  []string // names of the proxies that left long ago
}

// onlySilent reports whether all proxies that owe something left long ago.
func (o *owed) onlySilent() bool {
	return len(o.silent) > 0 && o.proxies.Rejected == 0 && o.proxies.Behind == len(o.silent)
}

// whySilent is the reason for Unknown if proxies left long ago.
const whySilent = "proxies left long ago, and may run on with an older version, because their workloads are still there"

// whySilent returns the constant whySilent with the names of the proxies.
func (o *owed) whySilent() string {
	const most = 5
	names := strings.Join(o.silent[:min(len(o.silent), most)], ", ")
	if more := len(o.silent) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return whySilent + ": " + names
}

// owed asks the streams.
func (t *Tracker) owed(revision uint64, upto bool) owed {
	a := t.newAbsent() // first, because a missing proxy that connects meanwhile is in the Progress
	return newOwed(t.o.Streams.Progress(revision, upto, maxOwing), a)
}

// absent has the missing proxies: see Streams.Missing. They lack all revisions.
type absent struct {
	list []xds.Owing
	n    int
}

func (t *Tracker) newAbsent() absent {
	list, n := t.o.Streams.Missing(maxShown)
	return absent{list, n}
}

func newOwed(p xds.Progress, a absent) owed {
	p.Concerned, p.More, p.Owing = p.Concerned+a.n, p.More+a.n-len(a.list), append(p.Owing, a.list...)
	o := owed{Progress: p, owing: []Owing{}, more: p.More}
	o.proxies = Proxies{Connected: p.Connected, Concerned: p.Concerned, InForce: p.Settled, Behind: p.More}
	for _, x := range p.Owing {
		if x.State == xds.Rejected {
			o.proxies.Rejected++
		} else {
			o.proxies.Behind++
		}
		if x.State == xds.Silent {
			o.silent = append(o.silent, x.Name())
		}
		o.owing = append(o.owing, Owing{
			Proxy: x.Proxy, Cluster: x.Cluster, State: owingState(x.State), Since: x.Since, Type: x.Type, Message: x.Message,
			Together: x.Together,
		})
	}
	return o
}

// many remembers what streams owe while it is asked about many objects.
type many struct {
	t         *Tracker
	settled   uint64 // streams owe nothing of the revisions up to this one
	connected int
	newest    uint64          // see Streams.Later
	idle      map[string]bool // see Judge.Idle; nil until it is needed
	known     map[span]owed
	absent    absent
}

// span is a revision, or all revisions up to it.
type span struct {
	revision uint64
	upto     bool
}

func (t *Tracker) newMany() *many {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	m := &many{t: t, known: map[span]owed{}, absent: t.newAbsent()}
	_, m.newest = t.o.Streams.Later(last)
	// A debt up to a revision is a debt up to the next one too. Usually there is none.
	for above := last + 1; m.settled+1 < above; {
		at := last
		if above <= last {
			at = m.settled + (above-m.settled)/2
		}
		p := t.o.Streams.Progress(at, true, 0)
		if m.connected = p.Connected; p.InForce() {
			m.settled = at
		} else {
			above = at
		}
	}
	return m
}

// others reports whether a finding says that an object reaches no proxy. later is 1 if a proxy connected after a
// revision was published, and 0 otherwise.
func (m *many) others(k kinds.Key, revision uint64) (idle bool, later int) {
	if m.idle == nil {
		m.idle = m.t.o.Judge.Idle()
	}
	if m.newest >= revision {
		later = 1
	}
	return m.idle[k.String()], later
}

// owed returns what the streams owe of a version, which is the newest one of its object.
func (m *many) owed(v *archive.Version, revision uint64, upto bool) owed {
	if revision <= m.settled && (upto || v.Counted || !v.Settled.IsZero()) {
		return newOwed(xds.Progress{Published: true, Connected: m.connected, Counted: v.Counted}, m.absent)
	}
	at := span{revision, upto}
	o, ok := m.known[at]
	if !ok {
		o = newOwed(m.t.o.Streams.Progress(revision, upto, maxOwing), m.absent)
		o.owing, o.Owing = nil, nil
		m.known[at] = o
	}
	return o
}
