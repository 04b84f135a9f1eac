package progress

import (
	"context"
	"encoding/json"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// History has the versions of an object that were in force lately.
type History struct {
	Object   Object    `json:"object"`
	Versions []Past    `json:"versions"`           // newest first
	Replicas []Replica `json:"replicas,omitempty"` // other replicas, if the numbers are of all
}

// Past is one version of an object.
type Past struct {
	Generation int64      `json:"generation,omitempty"`
	Version    string     `json:"version,omitempty"` // hash of the content, if there is no generation
	Deleted    bool       `json:"deleted,omitempty"`
	Time       *time.Time `json:"time,omitempty"`    // of its commit; missing for a version of the first load
	Manager    string     `json:"manager,omitempty"` // field manager that wrote it
	Written    *time.Time `json:"written,omitempty"`
	Position   string     `json:"position,omitempty"` // file:line:column
	Proxies    int        `json:"proxies"`            // proxies that were sent something because of it
	Counted    bool       `json:"counted"`            // false if that number is not known, or a lower bound
	Took       *float64   `json:"took,omitempty"`     // seconds from the commit until all of them had it; nil if none had it
	Invalid    bool       `json:"invalid,omitempty"`  // it was not used as it is written, so it has no Took
	Restore    string     `json:"restore,omitempty"`  // command or text that brings the version before back
	NoRestore  string     `json:"noRestore,omitempty"`
}

// OwnHistory returns the history of an object as this replica knows it.
func (t *Tracker) OwnHistory(k kinds.Key) History {
	h := History{Object: objectOf(k), Versions: []Past{}}
	t.refuse(k)
	list, _ := t.o.Archive.Versions(k)
	for i := len(list) - 1; i >= 0; i-- {
		v := &list[i]
		p := Past{
			Generation: v.Generation, Deleted: v.Gone, Manager: v.Manager, Position: v.Position, Proxies: v.Proxies, Counted: v.Counted,
			Invalid: v.Invalid,
		}
		if v.Generation == 0 && !v.Gone {
			p.Version = v.Hash() // Secrets have none
		}
		if !v.Time.IsZero() {
			p.Time = &v.Time
			r := t.o.Archive.Restore(k, i)
			p.Restore, p.NoRestore = r.Command, r.Lost
		}
		if !v.Written.IsZero() {
			p.Written = &v.Written
		}
		if !v.Settled.IsZero() && !v.Invalid {
			took := v.Settled.Sub(v.Time).Seconds()
			p.Took = &took
		}
		h.Versions = append(h.Versions, p)
	}
	return h
}

// AskHistory returns the history of an object with the numbers of all replicas.
func (t *Tracker) AskHistory(ctx context.Context, k kinds.Key) History {
	h := t.OwnHistory(k)
	if t.o.Replicas != nil {
		t.addHistories(ctx, k, &h)
	}
	for i := range h.Versions {
		if p := &h.Versions[i]; p.Counted && p.Proxies == 0 {
			p.Took = nil
		}
	}
	return h
}

// addHistories adds the numbers of the other replicas.
func (t *Tracker) addHistories(ctx context.Context, k kinds.Key, h *History) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, x := range t.o.Replicas.AskMembers(ctx, HistoryPage+"?"+values(k).Encode()) {
		r := Replica{Name: x.Name}
		var b History
		err := x.Err
		if err == nil {
			err = json.Unmarshal(x.JSON, &b)
		}
		if err != nil {
			r.State, r.Error = Unknown, err.Error()
		}
		h.Replicas = append(h.Replicas, r)
		h.merge(b.Versions)
	}
}

// merge adds the numbers of another replica, whose versions are in the same order. A version that it does not have is
// not counted completely.
func (h *History) merge(list []Past) {
	for i := range h.Versions {
		p := &h.Versions[i]
		at := -1
		for j := range list {
			if list[j].Generation == p.Generation && list[j].Version == p.Version && list[j].Deleted == p.Deleted {
				at = j
				break
			}
		}
		if at < 0 {
			p.Counted, p.Took = false, nil
			continue
		}
		b := &list[at]
		list = list[at+1:]
		p.Proxies, p.Counted, p.Invalid = p.Proxies+b.Proxies, p.Counted && b.Counted, p.Invalid || b.Invalid
		switch {
		case p.Took == nil || b.Took == nil || p.Invalid:
			p.Took = nil
		case *b.Took > *p.Took:
			p.Took = b.Took
		}
	}
}

// Delays between two looks at revisions that are not settled.
const (
	minLook = 20 * time.Millisecond
	maxLook = time.Second
	perLook = 8 // revisions
)

// Run fills in the outcomes of recent changes until ctx ends. It sleeps while there are none. If there are other
// replicas, it also asks them every movedTime where departed proxies are.
func (t *Tracker) Run(ctx context.Context) error {
	var moved <-chan time.Time
	if t.o.Replicas != nil {
		moved = time.After(askTime) // soon after a start, because proxies of the other replicas are missing here
	}
	delay := minLook
	for {
		var again <-chan time.Time
		if t.look() {
			again = time.After(delay)
			delay = min(2*delay, maxLook)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-moved:
			t.forgetMoved(ctx)
			moved = time.After(t.movedDelay())
		case <-t.wake:
			if delay = minLook; moved != nil && t.expects() {
				moved = time.After(askTime)
			}
		}
	}
}

// outcome returns the number of proxies that a revision is known to have concerned, because they have it or have
// rejected it. counted is true if it concerned no others. Proxies that are behind are not included, because the push
// may turn out not to concern them.
func outcome(p *xds.Progress) (concerned int, counted bool) {
	concerned = p.Settled
	for i := range p.Owing {
		if p.Owing[i].State == xds.Rejected {
			concerned++
		}
	}
	return concerned, p.Published && p.Counted && concerned == p.Concerned
}

// refuse marks the newest version of an object as invalid if the control plane does not use it as it is written.
func (t *Tracker) refuse(k kinds.Key) {
	if generation, is := t.o.Judge.Unusable(k); is {
		t.o.Archive.Refuse(k, generation)
	}
}

// look looks at some of the open revisions, and reports whether any are left.
func (t *Tracker) look() (more bool) {
	t.o.Archive.Encode()
	t.mu.Lock()
	n := min(perLook, len(t.open))
	list := append([]open(nil), t.open[:n]...)
	t.mu.Unlock()
	settled := map[uint64]bool{} // of the revisions in list
	for _, o := range list {
		p := t.o.Streams.Progress(o.revision, false, maxOwing)
		concerned, counted := outcome(&p)
		var at time.Time
		if settled[o.revision] = p.InForce(); p.InForce() {
			at = t.o.Clock.Now()
		}
		for _, k := range o.keys {
			t.refuse(k)
			t.o.Archive.Outcome(k, o.revision, concerned, p.Settled, counted, at)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var rest, tried []open // the ones that were looked at go to the end
	for _, o := range t.open {
		switch is, looked := settled[o.revision]; {
		case !looked:
			rest = append(rest, o)
		case !is:
			tried = append(tried, o)
		}
	}
	t.open = append(rest, tried...)
	return len(t.open) > 0
}
