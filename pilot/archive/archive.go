package archive

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options are the bounds of an Archive. 0 means the default.
type Options struct {
	Objects   int // most objects of configuration; default 4096
	Workloads int // most Pods, EndpointSlices and Nodes; default 1024
	Versions  int // most versions of one object of configuration; default 8
	Bytes     int // most bytes of content; default 4 MiB
}

// ofWorkload is the most versions of one Pod, EndpointSlice or Node.
const ofWorkload = 2

// maxUnencoded bounds the versions that wait for Encode.
const maxUnencoded = 1024

// Archive keeps the last versions of objects. Its methods are safe for concurrent use.
type Archive struct {
	o Options

	mu        sync.Mutex
	objects   cache
	workloads cache
	writes    *simplelru.LRU[kinds.Key, config.Write] // of versions that are read and not committed
	encoded   []*version                              // versions with content, in the order of encoding
	bytes     int                                     // of content
	waiting   []*version                              // not encoded yet
}

// cache keeps the entries of some kinds.
type cache struct {
	entries *simplelru.LRU[kinds.Key, *entry]
	floor   uint64 // newest revision of a version that was dropped with its object
}

// entry has the versions of one object, oldest first.
type entry struct {
	versions []*version
	trimmed  bool // older versions were dropped
}

// Version is one version of an object.
type Version struct {
	Revision   uint64    // of the snapshot that put it in force
	AsOld      bool      // it came into force at Revision or before: all that is owed up to Revision may be of it
	Time       time.Time // of its commit; zero for a version of the first load
	UID        string
	Generation int64     // metadata.generation; 0 if its kind has none, or if the object is in a file
	Gone       bool      // the object was deleted
	Manager    string    // field manager that wrote it; empty if unknown
	Written    time.Time // of that write; zero if unknown
	Position   string    // file:line:column; empty for objects of an API server

	// Proxies is the largest number of proxies that the version is known to have concerned at a time. Once Settled is
	// set, it is the largest number of proxies that had the version at a time. Counted is false if there may be others.
	Proxies int
	Counted bool
	Settled time.Time // time at which all of them had it; zero if some lack it, or if that is unknown
	Invalid bool      // the control plane does not use it as it is written: see Refuse

	had    int           // the largest number of proxies that had it at a time
	object *kinds.Object // until it is encoded
	hash   string        // of the content; empty until it is encoded
	part   bool          // a part of what its author wrote is left out
}

// Hash returns the hash of the version's content. It is empty for a deletion, and if the content is not kept.
func (v *Version) Hash() string {
	if v.hash == "" && v.object != nil {
		return Content(v.object)
	}
	return v.hash
}

// version is a Version with its content.
type version struct {
	Version
	content []byte // YAML; nil if it is not kept
	lost    string // why there is no content; empty if there is
	dropped bool   // the Archive no longer keeps the version
}

// New returns an empty Archive.
func New(o Options) *Archive {
	o.Objects, o.Workloads = cmp.Or(o.Objects, 4096), cmp.Or(o.Workloads, 1024)
	o.Versions, o.Bytes = cmp.Or(o.Versions, 8), cmp.Or(o.Bytes, 4<<20)
	a := &Archive{o: o}
	a.objects.entries = a.newEntries(o.Objects, &a.objects.floor)
	a.workloads.entries = a.newEntries(o.Workloads, &a.workloads.floor)
	a.writes, _ = simplelru.NewLRU[kinds.Key, config.Write](o.Objects, nil) // it fails only for a negative size
	return a
}

func (a *Archive) newEntries(size int, floor *uint64) *simplelru.LRU[kinds.Key, *entry] {
	l, _ := simplelru.NewLRU[kinds.Key, *entry](size, func(_ kinds.Key, e *entry) {
		for _, v := range e.versions {
			*floor = max(*floor, v.Revision)
			a.drop(v)
		}
	})
	return l
}

// IsKept reports whether the Archive keeps versions of an object with that key: an object of a source, and not a fact
// or the last good version beside another one.
func IsKept(k kinds.Key) bool { return len(k.Kind.Versions) > 0 && !k.IsLastGood() }

func (a *Archive) cacheOf(k *kinds.Kind) *cache {
	if k.IsWorkload() {
		return &a.workloads
	}
	return &a.objects
}

// Wrote implements config.Writes.
func (a *Archive) Wrote(w config.Write) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes.Add(w.Key, w)
}

// Change is a committed change of one object.
type Change struct {
	Key            kinds.Key
	Object, Before *kinds.Object // Before is optional; it is the object of the first load if there are no versions
	Revision       uint64        // of the snapshot of the commit
	Unchanged      bool          // the snapshot is the one before, because the commit changed nothing in it
	Time           time.Time
}

// Has reports whether an object has versions.
func (a *Archive) Has(k kinds.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cacheOf(k.Kind).entries.Contains(k)
}

// Add records a change, and reports whether it is a new version.
func (a *Archive) Add(c Change) bool {
	if !IsKept(c.Key) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	write, written := a.writes.Peek(c.Key)
	if written && (c.Object == nil || write.Generation == c.Object.Generation) {
		a.writes.Remove(c.Key)
	}
	of := a.cacheOf(c.Key.Kind)
	e, ok := of.entries.Get(c.Key)
	if !ok {
		e = &entry{}
		if c.Before != nil {
			e.versions = append(e.versions, a.first(c, of))
		}
	}
	last := e.last()
	if last != nil && last.is(c.Object) {
		return false
	}
	v := &version{Version: Version{Revision: c.Revision, AsOld: c.Unchanged, Time: c.Time, Gone: c.Object == nil}}
	if c.Unchanged && last != nil { // it has the effect of the version before
		v.Revision, v.AsOld = last.Revision, last.AsOld
	}
	if o := c.Object; o != nil {
		v.take(o)
		if written && write.Generation == o.Generation {
			v.Manager, v.Written = write.Manager, write.Time
		}
	}
	if last != nil {
		a.enqueue(last)
	}
	e.versions = append(e.versions, v)
	most := a.o.Versions
	if c.Key.Kind.IsWorkload() {
		most = ofWorkload
	}
	if n := len(e.versions) - most; n > 0 {
		for _, old := range e.versions[:n] {
			a.drop(old)
		}
		e.versions, e.trimmed = slices.Delete(e.versions, 0, n), true
	}
	if !ok {
		of.entries.Add(c.Key, e)
	}
	return true
}

// first returns the version of an object that was in force before its first change. The caller holds mu.
func (a *Archive) first(c Change, s *cache) *version {
	v := &version{Version: Version{Revision: max(1, s.floor), AsOld: true}}
	v.take(c.Before)
	return v
}

func (e *entry) last() *version {
	if len(e.versions) == 0 {
		return nil
	}
	return e.versions[len(e.versions)-1]
}

// take sets the fields of a version from an object. The version holds the object until Encode: while it is the newest
// one, the World holds the object too.
func (v *version) take(o *kinds.Object) {
	v.UID, v.Generation, v.Position, v.part = o.UID, o.Generation, o.Position, o.Partial
	switch {
	case o.Kind == kinds.Secret:
		v.lost = "the content of Secrets is not kept"
	case o.Kind.IsWorkload():
		v.lost = "controllers write objects of this kind"
	default:
		v.object = o
	}
}

// is reports whether an object is this version.
func (v *version) is(o *kinds.Object) bool {
	switch {
	case o == nil || v.Gone:
		return o == nil && v.Gone
	case v.UID != o.UID || v.Generation != o.Generation:
		return false
	case v.object == nil:
		return false // a source hands over only objects that have changed
	case o.Generation != 0:
		return maps.Equal(v.object.Labels, o.Labels) && maps.Equal(v.object.Annotations, o.Annotations)
	}
	return config.Equal(v.object, o)
}

// enqueue lets Encode encode the content of a version that another one replaces. The caller holds mu.
func (a *Archive) enqueue(v *version) {
	switch {
	case v.object == nil:
	case len(a.waiting) >= maxUnencoded:
		v.object, v.lost = nil, "too many objects changed at a time"
	default:
		a.waiting = append(a.waiting, v)
	}
}

// drop marks a version that is no longer kept, and drops its content. The caller holds mu.
func (a *Archive) drop(v *version) {
	v.dropped, v.object = true, nil
	a.forget(v, tooOld)
}

// forget drops the content of a version. The caller holds mu.
func (a *Archive) forget(v *version, why string) {
	if v.content != nil {
		a.bytes -= len(v.content)
		v.content, v.lost = nil, why
	}
}

// Encode encodes the contents of versions that other ones have replaced.
func (a *Archive) Encode() {
	a.mu.Lock()
	list := a.waiting
	a.waiting = nil
	objects := make([]*kinds.Object, len(list))
	for i, v := range list {
		objects[i] = v.object
	}
	a.mu.Unlock()
	for i, v := range list {
		o := objects[i]
		if o == nil {
			continue // dropped meanwhile
		}
		hash := Content(o)
		text, lost := contentOf(o)
		a.mu.Lock()
		v.object = nil
		if !v.dropped {
			v.hash, v.content, v.lost = hash, text, lost
			a.keep(v)
		}
		a.mu.Unlock()
	}
}

// keep counts the content of a version, and drops the oldest contents beyond the bound. The caller holds mu.
func (a *Archive) keep(v *version) {
	if v.content == nil {
		return
	}
	a.bytes += len(v.content)
	a.encoded = append(a.encoded, v)
	drop := 0
	for a.bytes > a.o.Bytes && drop < len(a.encoded)-1 {
		a.forget(a.encoded[drop], tooOld)
		drop++
	}
	a.encoded = slices.Delete(a.encoded, 0, drop)
	if len(a.encoded) > 2*a.o.Objects {
		a.encoded = slices.DeleteFunc(a.encoded, func(v *version) bool { return v.content == nil })
	}
}

// Refuse marks the newest version of an object as Invalid, because the control plane does not use it as it is written.
// generation is the generation of that version, or 0 if it has none. Without a generation, Refuse marks the newest
// version that is kept only if a part of it is left out, or if the object is a Secret. Otherwise the refused version
// was not kept, and the newest one that is kept is the last good version.
func (a *Archive) Refuse(k kinds.Key, generation int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.cacheOf(k.Kind).entries.Peek(k)
	if !ok {
		return
	}
	v := e.last()
	if v != nil && !v.Gone && v.Generation == generation && (generation != 0 || v.part || k.Kind == kinds.Secret) {
		v.Invalid = true
	}
}

// Outcome records how far proxies are with a revision that changed an object. proxies is the number of proxies that the
// revision is known to have concerned, and had the number of them that have it. counted is true if no others may be
// concerned. settled is when all of them had it; zero if some lack it. Once settled is set, the version's number no
// longer includes proxies that left without it.
func (a *Archive) Outcome(k kinds.Key, revision uint64, proxies, had int, counted bool, settled time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.cacheOf(k.Kind).entries.Peek(k)
	if !ok {
		return
	}
	for _, v := range e.versions {
		if v.Revision == revision && !v.AsOld && v.Settled.IsZero() {
			v.had, v.Proxies, v.Counted, v.Settled = max(v.had, had), max(v.Proxies, proxies), v.Counted || counted, settled
			if !settled.IsZero() {
				v.Proxies = v.had
			}
		}
	}
}

// Versions returns the versions of an object, oldest first, and the floor of its kind: an object without versions has
// not changed after the revision floor, which is 0 if nothing was dropped.
func (a *Archive) Versions(k kinds.Key) (list []Version, floor uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.cacheOf(k.Kind)
	if e, ok := s.entries.Peek(k); ok {
		for _, v := range e.versions {
			list = append(list, v.Version)
		}
	}
	return list, s.floor
}
