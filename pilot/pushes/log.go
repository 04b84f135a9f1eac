package pushes

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Options of a Log. Zero values stand for the defaults.
type Options struct {
	Pushes     int // how many are kept at most, 256
	Rejections int // likewise, 128
	Bytes      int // bound on the text of both, each; 512 KiB
}

// MaxCauses is how many objects one push lists.
const MaxCauses = 32

// Object is an object of configuration as it caused a push, or as a resource was made of it.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Position  string `json:"position,omitempty"` // where it was read, file:line:column; empty for objects of an API server
	Gone      bool   `json:"gone,omitempty"`     // it was deleted
	Changed   bool   `json:"changed,omitempty"`  // of what is rejected: it caused the push
}

// String returns the kind, the namespace and the name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Commit is what is known of a push when its snapshot is published.
type Commit struct {
	Revision  uint64
	Full      bool // more than endpoints and workloads changed
	Received  time.Time
	Began     time.Time     // when the changes were taken from the throttle
	Published time.Time     // when the snapshot was ready to be sent
	Snapshot  time.Duration // to make the snapshot
	Prepare   time.Duration // to prepare the translation
	Triggers  map[string]int
	Objects   []Object // that changed, at most MaxCauses
	More      int      // that changed and are not listed
}

// Rejection is what a proxy said of a response that it did not take.
type Rejection struct {
	Push      uint64    `json:"push,omitempty"` // 0: the response was no part of a push
	Time      time.Time `json:"time"`           // the last time
	Proxy     string    `json:"proxy"`          // the first that said so
	Proxies   int       `json:"count"`          // how often it was said
	Type      string    `json:"type"`
	Code      string    `json:"code"`
	Message   string    `json:"message"`
	Resources []string  `json:"resources"`         // that it is about: those that the message names, or all where there are few
	Of        int       `json:"of"`                // how many resources the response had
	Sources   []Object  `json:"sources,omitempty"` // of which these resources were made
}

// Log is the last pushes. Its methods may be called from any goroutine.
type Log struct {
	options  Options
	starting Tally

	mu         sync.Mutex
	entries    []*entry // oldest first, by revision
	bytes      int
	rejections []*Rejection  // oldest first
	rejected   int           // bytes
	changed    chan struct{} // closed at the next push; nil: nobody waits
}

type entry struct {
	Commit
	tally *Tally // by itself: a stream that holds it holds nothing else
	size  int
}

// New returns an empty Log.
func New(o Options) *Log {
	o.Pushes, o.Rejections, o.Bytes = cmp.Or(o.Pushes, 256), cmp.Or(o.Rejections, 128), cmp.Or(o.Bytes, 512<<10)
	return &Log{options: o}
}

// overhead is about what an entry takes beside its text.
const overhead = 1 << 10

// Add adds a push. Revisions grow.
func (l *Log) Add(c Commit) {
	if n := len(c.Objects) - MaxCauses; n > 0 {
		c.Objects, c.More = slices.Clip(c.Objects[:MaxCauses]), c.More+n
	}
	e := &entry{Commit: c, tally: &Tally{id: c.Revision}, size: overhead + sizeOf(c.Objects)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	l.bytes += e.size
	drop := 0
	for len(l.entries)-drop > 1 && (len(l.entries)-drop > l.options.Pushes || l.bytes > l.options.Bytes) {
		l.bytes -= l.entries[drop].size
		drop++
	}
	l.entries = slices.Delete(l.entries, 0, drop)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func sizeOf(list []Object) int {
	n := 0
	for _, o := range list {
		n += 80 + len(o.Kind) + len(o.Namespace) + len(o.Name) + len(o.Position)
	}
	return n
}

// Tally returns that of a push, or nil if it is not in the log. A nil Log has none.
func (l *Log) Tally(revision uint64) *Tally {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, ok := l.find(revision); ok {
		return l.entries[i].tally
	}
	return nil
}

func (l *Log) find(revision uint64) (int, bool) {
	return slices.BinarySearchFunc(l.entries, revision, func(e *entry, r uint64) int { return cmp.Compare(e.Revision, r) })
}

// Unprompted returns the Tally of what streams ask for by themselves, or nil for a nil Log.
func (l *Log) Unprompted() *Tally {
	if l == nil {
		return nil
	}
	return &l.starting
}

// Reject records a rejection of what counts in a Tally, which may be nil. sources is called without a lock, if nobody
// said the same before.
func (l *Log) Reject(t *Tally, r Rejection, sources func() []Object) {
	if l == nil {
		return
	}
	if t != nil {
		r.Push = t.id
	}
	r.Proxies = 1
	if l.again(r) {
		return
	}
	if sources != nil {
		r.Sources = l.changedFirst(r.Push, sources())
	}
	if l.again(r) { // of another stream meanwhile
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rejections = append(l.rejections, &r)
	l.rejected += r.size()
	for len(l.rejections) > 1 && (len(l.rejections) > l.options.Rejections || l.rejected > l.options.Bytes) {
		l.rejected -= l.rejections[0].size()
		l.rejections = slices.Delete(l.rejections, 0, 1)
	}
}

// changedFirst puts the objects that caused a push before the others: what a proxy does not take is most often new.
func (l *Log) changedFirst(push uint64, list []Object) []Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.find(push)
	if !ok {
		return list
	}
	list = slices.Clone(list)
	for k := range list {
		list[k].Changed = slices.Contains(l.entries[i].Objects, list[k])
	}
	slices.SortStableFunc(list, func(a, b Object) int {
		switch {
		case a.Changed == b.Changed:
			return 0
		case a.Changed:
			return -1
		}
		return 1
	})
	return list
}

// again counts a rejection that says the same as one before, and reports whether there is one.
func (l *Log) again(r Rejection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range slices.Backward(l.rejections) {
		if x.Push == r.Push && x.Type == r.Type && x.Code == r.Code && x.Message == r.Message && slices.Equal(x.Resources, r.Resources) {
			x.Proxies++
			x.Time = r.Time
			return true
		}
	}
	return false
}

func (r *Rejection) size() int {
	n := overhead + len(r.Message) + len(r.Proxy) + sizeOf(r.Sources)
	for _, name := range r.Resources {
		n += 16 + len(name)
	}
	return n
}

// Wait returns when there is a push newer than a revision, or ctx has ended.
func (l *Log) Wait(ctx context.Context, since uint64) {
	l.mu.Lock()
	if n := len(l.entries); n > 0 && l.entries[n-1].Revision > since {
		l.mu.Unlock()
		return
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}
