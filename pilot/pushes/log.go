package pushes

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Options of a Log. Zero values mean the defaults.
type Options struct {
	Pushes     int // most pushes to keep; default 256
	Rejections int // most rejections to keep; default 128
	Bytes      int // most bytes of text, of pushes and of rejections each; default 512 KiB
}

// MaxCauses bounds the objects that one push lists.
const MaxCauses = 32

// Object is an object of configuration that caused a push or that a rejected resource is made of.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Position  string `json:"position,omitempty"` // file:line:column; empty for objects of an API server
	Gone      bool   `json:"gone,omitempty"`     // deleted
	Changed   bool   `json:"changed,omitempty"`  // of a rejected resource: the object caused the push
}

// String returns the kind, the namespace and the name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Commit describes a push when its snapshot is published.
type Commit struct {
	Revision  uint64
	Full      bool // more than endpoints and workloads changed
	Received  time.Time
	Began     time.Time     // when the throttle released the changes
	Published time.Time     // when the snapshot was ready to be sent
	Snapshot  time.Duration // time to make the snapshot
	Prepare   time.Duration // time to prepare the translation
	Triggers  map[string]int
	Objects   []Object // changed objects, at most MaxCauses
	More      int      // number of other changed objects
}

// Rejection is a response that proxies have rejected, with their message.
type Rejection struct {
	Push    uint64    `json:"push,omitempty"` // 0 if the response was not part of a push
	Time    time.Time `json:"time"`           // of the last rejection
	Proxy   string    `json:"proxy"`          // the first proxy that rejected it
	Proxies int       `json:"count"`          // number of rejections
	Type    string    `json:"type"`
	Code    string    `json:"code"`
	Message string    `json:"message"`
	// Resources are the rejected ones: the resources that the message names, or all of the response if they are few.
	Resources []string `json:"resources"`
	Of        int      `json:"of"`                // number of resources in the response
	Sources   []Object `json:"sources,omitempty"` // objects that the resources are made of
}

// Log holds the last pushes. Its methods are safe for concurrent use.
type Log struct {
	options  Options
	starting Tally

	mu         sync.Mutex
	entries    []*entry // oldest first, by revision
	bytes      int
	rejections []*Rejection  // oldest first
	rejected   int           // bytes of rejections
	changed    chan struct{} // closed at the next push; nil if no caller waits
}

type entry struct {
	Commit
	tally *Tally // allocated separately, so that a stream that holds it does not hold the entry
	size  int
}

// New returns an empty Log.
func New(o Options) *Log {
	o.Pushes, o.Rejections, o.Bytes = cmp.Or(o.Pushes, 256), cmp.Or(o.Rejections, 128), cmp.Or(o.Bytes, 512<<10)
	return &Log{options: o}
}

// overhead is the approximate number of bytes of an entry besides its text.
const overhead = 1 << 10

// Add adds a push. Revisions must increase.
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

// Tally returns the Tally of a push, or nil if the log does not have the push. A nil Log has none.
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

// Unprompted returns the Tally of responses outside pushes, or nil for a nil Log.
func (l *Log) Unprompted() *Tally {
	if l == nil {
		return nil
	}
	return &l.starting
}

// Reject records the rejection of a response whose push has the given Tally, which may be nil. It calls sources without
// holding a lock, and only for the first of several equal rejections.
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
	if l.again(r) { // another stream may have recorded it meanwhile
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

// changedFirst moves the objects that caused a push to the front, because a rejected object is usually one that
// changed.
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

// again counts a rejection that equals an earlier one, and reports whether there is one.
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

// Wait blocks until there is a push newer than a revision, or until ctx ends.
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
