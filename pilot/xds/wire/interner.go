package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"unicode/utf8"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Interner interns the lists of names that streams subscribe to, because streams of a cohort have the same ones and
// change them in the same way. It holds them weakly. It also shares initial versions (initial.go). It is safe for
// concurrent use.
type Interner struct {
	table     envoy.NameInterner
	seed      maphash.Seed
	Few       int       // shorter lists are not looked up
	scratches sync.Pool // of *rawRequest

	mu     sync.Mutex
	made   map[nameEdit]weak.Pointer[envoy.Names]
	known  map[uint64]*knownNames                  // by the least hash of their names
	slots  int                                     // size of all indexes in known
	shared map[uint64]weak.Pointer[SharedVersions] // by both versionKeys
	recent map[*SharedVersions]struct{}            // kept although no stream may have them
	cost   int                                     // sum of the costs in recent
	nodes  map[[sha256.Size]byte]node.Capabilities // by digest of the extensions
}

// nameEdit identifies an edit by the list and a digest of the removed and added names.
type nameEdit struct {
	from   weak.Pointer[envoy.Names]
	digest [sha256.Size]byte
}

// knownNames is a list that lists in requests are compared with.
type knownNames struct {
	names weak.Pointer[envoy.Names]
	index index
}

// Bounds of the caches.
const (
	fewNames   = 16
	maxSlots   = 1 << 21 // of all indexes together
	maxNodes   = 256
	maxEdits   = 1024
	maxScratch = 1 << 16 // entries in a reused rawRequest; an entry stands for 64 bytes, too
)

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	return &Interner{
		seed: maphash.MakeSeed(), Few: fewNames, scratches: sync.Pool{New: func() any { return &rawRequest{} }},
		recent: map[*SharedVersions]struct{}{},
	}
}

// index is a hash table of positions in a list of names.
type index []uint32

func (l *Interner) index(names []string) index {
	size := 4
	for size < 2*len(names) {
		size *= 2
	}
	x := make(index, size)
	for p, name := range names {
		i := maphash.String(l.seed, name) % uint64(size)
		for x[i] != 0 {
			i = (i + 1) % uint64(size)
		}
		x[i] = uint32(p) + 1
	}
	return x
}

// find returns the position of an entry's name in the indexed names, or -1.
func (x index) find(names []string, e *entry) int {
	mask := uint64(len(x) - 1)
	for i := e.hash & mask; x[i] != 0; i = (i + 1) & mask {
		if p := int(x[i]) - 1; names[p] == string(e.name) {
			return p
		}
	}
	return -1
}

// entry is a name in a request, with its version if there is one.
type entry struct {
	name, version []byte
	hash          uint64 // of the name
	position      int    // position in the list that it is compared with, or -1
}

// hash sets the hashes of the entries' names and returns the least one. Lists with mostly the same names probably share
// it, independent of their order.
func (l *Interner) hash(list []entry) uint64 {
	least := ^uint64(0)
	for i := range list {
		e := &list[i]
		e.hash = maphash.Bytes(l.seed, e.name)
		least = min(least, e.hash)
	}
	return least
}

// intern returns the list of the names in a request. It passes names that are in no known list to check. If check
// returns false, it returns no list.
func (l *Interner) intern(list []entry, check func([]byte) bool) (Names, error) {
	var n Names
	list = slices.DeleteFunc(list, func(e entry) bool {
		n.Star = n.Star || string(e.name) == Star
		return string(e.name) == Star
	})
	if len(list) == 0 {
		return n, nil
	}
	var least uint64
	var was *envoy.Names
	common := 0
	if len(list) >= l.Few {
		least = l.hash(list)
		l.mu.Lock()
		k := l.known[least]
		l.mu.Unlock()
		if k != nil {
			was = k.names.Value()
		}
		if was != nil {
			common = k.match(was.All(), list)
		}
		if was != nil && common == was.Len() && !slices.ContainsFunc(list, func(e entry) bool { return e.position < 0 }) {
			n.Names = was
			return n, nil
		}
	}
	names := make([]string, len(list))
	for i := range list {
		e := &list[i]
		switch {
		case common > 0 && e.position >= 0:
			names[i] = was.All()[e.position]
			continue
		case !utf8.Valid(e.name):
			return n, errMalformed
		case !check(e.name):
			return n, nil
		}
		names[i] = string(e.name)
	}
	if common < len(list)/8*7 {
		was = nil
	}
	n.Names = l.table.InternFrom(was, names)
	if len(list) >= l.Few {
		l.remember(least, n.Names)
	}
	return n, nil
}

// match sets the positions of entries in names, and returns the number of names with an entry.
func (k *knownNames) match(names []string, list []entry) int {
	seen, n := make([]bool, len(names)), 0
	for i := range list {
		e := &list[i]
		if e.position = k.index.find(names, e); e.position >= 0 && !seen[e.position] {
			seen[e.position] = true
			n++
		}
	}
	return n
}

func (l *Interner) remember(least uint64, names *envoy.Names) {
	k := &knownNames{weak.Make(names), l.index(slices.Collect(names.Each()))}
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.known[least]; was != nil {
		l.slots -= len(was.index)
	}
	if l.known == nil || l.slots+len(k.index) > maxSlots {
		l.known, l.slots = map[uint64]*knownNames{}, 0
	}
	l.known[least] = k
	l.slots += len(k.index)
}

// Edited returns a list without the names in remove and with the names in add.
func (l *Interner) Edited(from, remove, add *envoy.Names) *envoy.Names {
	switch {
	case remove == nil && add == nil:
		return from
	case from == nil:
		return add
	}
	k := nameEdit{weak.Make(from), digest(remove.All(), add.All())}
	l.mu.Lock()
	n := l.made[k].Value()
	l.mu.Unlock()
	if n != nil {
		return n
	}
	n = l.table.Edited(from, remove, add)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil || len(l.made) >= maxEdits {
		l.made = map[nameEdit]weak.Pointer[envoy.Names]{}
	}
	l.made[k] = weak.Make(n)
	return n
}

// Of returns the list with those names.
func (l *Interner) Of(names []string) *envoy.Names { return l.table.Intern(names) }

// Len returns the number of lists in use.
func (l *Interner) Len() int { return l.table.Len() }

// Common returns the names that both lists have.
func (l *Interner) Common(a, b *envoy.Names) *envoy.Names {
	return l.table.InternFrom(a, slices.DeleteFunc(slices.Clone(a.All()), func(name string) bool { return !b.Has(name) }))
}

// digest returns a collision-resistant digest of lists of names, because clients choose the names.
func digest(lists ...[]string) (sum [sha256.Size]byte) {
	h := sha256.New()
	var n [8]byte
	for _, list := range lists {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(n[:0], uint64(len(list)))) // never fails
		for _, name := range list {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(n[:0], uint64(len(name))))
			_, _ = io.WriteString(h, name)
		}
	}
	h.Sum(sum[:0])
	return sum
}

// Forget drops the entries for the previous snapshot, the lists that are not in use, and the versions that no stream
// has and that were not used since the last call.
func (l *Interner) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = nil
	for least, k := range l.known {
		if k.names.Value() == nil {
			delete(l.known, least)
			l.slots -= len(k.index)
		}
	}
	for c := range l.recent {
		if !c.used {
			l.evict(c)
		}
		c.used = false
	}
	for least, c := range l.shared {
		if c.Value() == nil {
			delete(l.shared, least)
		}
	}
}

// capabilities returns the capabilities for a digest of extensions, if they are cached.
func (l *Interner) capabilities(digest [sha256.Size]byte) (node.Capabilities, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.nodes[digest]
	return c, ok
}

func (l *Interner) rememberCapabilities(digest [sha256.Size]byte, c node.Capabilities) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil || len(l.nodes) >= maxNodes {
		l.nodes = map[[sha256.Size]byte]node.Capabilities{}
	}
	l.nodes[digest] = c
}

// scratch returns a buffer for a request's fields.
func (l *Interner) scratch() *rawRequest { return l.scratches.Get().(*rawRequest) }

func (l *Interner) release(w *rawRequest) {
	if cap(w.names)+cap(w.unsubscribed)+cap(w.versions)+cap(w.bytes)/64 > maxScratch {
		return
	}
	*w = rawRequest{bytes: w.bytes, names: w.names[:0], unsubscribed: w.unsubscribed[:0], versions: w.versions[:0]}
	l.scratches.Put(w)
}
