package pushes

import (
	"maps"
	"slices"
	"time"
)

// Push describes one push at one moment.
type Push struct {
	ID       uint64         `json:"id"`   // revision of its snapshot
	Time     time.Time      `json:"time"` // arrival of its first change; for the first load, the time of its commit
	Full     bool           `json:"full"` // more than endpoints and workloads changed
	Triggers map[string]int `json:"triggers,omitempty"`
	Causes   []Object       `json:"causes"`
	More     int            `json:"more,omitempty"` // number of changed objects that Causes does not list
	Stages   Stages         `json:"stages"`

	Proxies  int64 `json:"proxies"` // proxies that were sent a response
	Acked    int64 `json:"acked"`
	Rejected int64 `json:"rejected"`
	Lost     int64 `json:"lost"` // disconnected, or too far behind to tell
	Pending  int64 `json:"pending"`

	Responses int64       `json:"responses"`
	Resources int64       `json:"resources"`
	Removed   int64       `json:"removed"`
	Bytes     int64       `json:"bytes"`
	Types     []TypeCount `json:"types"`

	FirstSend *time.Time `json:"firstSend,omitempty"`
	LastSend  *time.Time `json:"lastSend,omitempty"`
	LastAck   *time.Time `json:"lastAck,omitempty"`

	Rejections []Rejection `json:"rejections"`

	// Replica names the replica that pushed, if the answers of several replicas are merged.
	Replica string `json:"replica,omitempty"`
}

// Stages are the durations of the stages in milliseconds. FirstSend, LastSend and LastAck begin when the snapshot is
// ready, and are missing until then.
type Stages struct {
	Throttle  float64  `json:"throttle"` // from the first change to the commit
	Snapshot  float64  `json:"snapshot"`
	Prepare   float64  `json:"prepare"`
	FirstSend *float64 `json:"firstSend,omitempty"`
	LastSend  *float64 `json:"lastSend,omitempty"`
	LastAck   *float64 `json:"lastAck,omitempty"`
	Total     float64  `json:"total"` // from the first change to the last event so far
}

// TypeCount counts the responses of one type.
type TypeCount struct {
	Type      string `json:"type"`
	Responses int64  `json:"responses"`
	Resources int64  `json:"resources"`
	Removed   int64  `json:"removed,omitempty"`
	Bytes     int64  `json:"bytes"`
}

// Page is the debug page of a Log.
type Page struct {
	Newest uint64 `json:"newest"` // ID of the newest push, even if it is not listed
	Oldest uint64 `json:"oldest"` // ID of the oldest push in the log
	Pushes []Push `json:"pushes"` // oldest first
	// Unprompted counts responses outside pushes: all resources of a stream that starts, and later subscriptions. It
	// has no stages and no causes.
	Unprompted Push `json:"unprompted"`
}

// Since returns the newest pushes after a revision, at most most of them. 0 means all.
func (l *Log) Since(revision uint64, most int) Page {
	l.mu.Lock()
	defer l.mu.Unlock()
	page := Page{Pushes: []Push{}}
	if n := len(l.entries); n > 0 {
		page.Newest, page.Oldest = l.entries[n-1].Revision, l.entries[0].Revision
	}
	from, _ := l.find(revision + 1)
	if most > 0 {
		from = max(from, len(l.entries)-most)
	}
	for _, e := range l.entries[from:] {
		page.Pushes = append(page.Pushes, l.describe(e))
	}
	page.Unprompted = Push{Causes: []Object{}, Types: []TypeCount{}, Rejections: l.rejectionsOf(0)}
	l.starting.describe(&page.Unprompted)
	return page
}

// describe returns the current state of an entry. The caller holds mu.
func (l *Log) describe(e *entry) Push {
	p := Push{
		ID: e.Revision, Time: e.Received, Full: e.Full, Triggers: maps.Clone(e.Triggers), Causes: e.Objects, More: e.More,
		Stages: Stages{Snapshot: milliseconds(e.Snapshot), Prepare: milliseconds(e.Prepare)}, Types: []TypeCount{},
		Rejections: l.rejectionsOf(e.Revision),
	}
	if p.Causes == nil {
		p.Causes = []Object{}
	}
	if p.Time.IsZero() {
		p.Time = e.Began
	}
	p.Stages.Throttle = milliseconds(max(0, e.Began.Sub(p.Time)))
	e.tally.describe(&p)
	end := e.Published
	for _, x := range []struct {
		at *time.Time
		to **float64
	}{{p.FirstSend, &p.Stages.FirstSend}, {p.LastSend, &p.Stages.LastSend}, {p.LastAck, &p.Stages.LastAck}} {
		if x.at != nil {
			took := milliseconds(max(0, x.at.Sub(e.Published)))
			*x.to = &took
			if x.at.After(end) {
				end = *x.at
			}
		}
	}
	p.Stages.Total = milliseconds(max(0, end.Sub(p.Time)))
	return p
}

// rejectionsOf returns the rejections of a push. The caller holds mu.
func (l *Log) rejectionsOf(revision uint64) []Rejection {
	list := []Rejection{}
	for _, r := range l.rejections {
		if r.Push == revision {
			c := *r
			c.Resources = slices.Clone(c.Resources)
			list = append(list, c)
		}
	}
	return list
}

// Rejections returns the rejections in the log, oldest first.
func (l *Log) Rejections() []Rejection {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []Rejection{}
	for _, r := range l.rejections {
		list = append(list, *r)
	}
	return list
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// Newest returns the ID of the newest push, or 0 if there is none.
func (l *Log) Newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.entries); n > 0 {
		return l.entries[n-1].Revision
	}
	return 0
}
