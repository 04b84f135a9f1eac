package xds

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

// lists makes the lists of names that streams subscribe to, which are the same for the streams of a cohort and change in the same way. It holds none of them: they
// are there as long as a stream subscribes to them. What clients bring of earlier streams it makes once as well (declared.go). Safe for concurrent use.
type lists struct {
	table envoy.NameTable
	seed  maphash.Seed
	few   int       // names that are found without an index
	wires sync.Pool // of *wire

	mu      sync.Mutex
	made    map[edit]weak.Pointer[envoy.Names]
	known   map[uint64]*known                       // by the least hash of a name
	places  int                                     // of known
	brought map[uint64]*core                        // the same
	cost    int                                     // of brought
	nodes   map[[sha256.Size]byte]node.Capabilities // by a digest of the extensions
}

// edit is a list and a digest of what is taken from it and added.
type edit struct {
	from   weak.Pointer[envoy.Names]
	digest [sha256.Size]byte
}

// known is a list that a request is compared with.
type known struct {
	names weak.Pointer[envoy.Names]
	index index
}

// Bounds of what is kept of clients' lists.
const (
	fewNames   = 16
	mostPlaces = 1 << 21 // of all indexes
	mostNodes  = 256
	mostWire   = 1 << 14 // entries of a wire that is used again, each for 64 bytes of a request as well
)

func newLists() *lists {
	return &lists{seed: maphash.MakeSeed(), few: fewNames, wires: sync.Pool{New: func() any { return &wire{} }}}
}

// index finds names in a list by their hashes: each place holds that of a name and one, at its hash or after it.
type index []uint32

func (l *lists) index(names []string) index {
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

// find gives where a name is among those that the index was made of, or -1.
func (x index) find(names []string, e *entry) int {
	mask := uint64(len(x) - 1)
	for i := e.hash & mask; x[i] != 0; i = (i + 1) & mask {
		if p := int(x[i]) - 1; names[p] == string(e.name) {
			return p
		}
	}
	return -1
}

// entry is a name in a request, and the version that it comes with.
type entry struct {
	name, version []byte
	hash          uint64 // of the name
	place         int    // in what it is compared with; -1: not there
}

// hash has entries hashed, and gives the least hash: lists that have most in common share it, most likely, in whatever order.
func (l *lists) hash(list []entry) uint64 {
	least := ^uint64(0)
	for i := range list {
		e := &list[i]
		e.hash = maphash.Bytes(l.seed, e.name)
		least = min(least, e.hash)
	}
	return least
}

// named gives the names that a request lists. Those that no list has had yet are shown to check; where it says false, there is no list.
func (l *lists) named(list []entry, check func([]byte) bool) (named, error) {
	var n named
	list = slices.DeleteFunc(list, func(e entry) bool {
		n.star = n.star || string(e.name) == star
		return string(e.name) == star
	})
	if len(list) == 0 {
		return n, nil
	}
	var least uint64
	var was *envoy.Names
	common := 0
	if len(list) >= l.few {
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
		if was != nil && common == was.Len() && !slices.ContainsFunc(list, func(e entry) bool { return e.place < 0 }) {
			n.names = was
			return n, nil
		}
	}
	names := make([]string, len(list))
	for i := range list {
		e := &list[i]
		switch {
		case common > 0 && e.place >= 0:
			names[i] = was.All()[e.place]
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
	n.names = l.table.From(was, names)
	if len(list) >= l.few {
		l.know(least, n.names)
	}
	return n, nil
}

// match finds entries in names, and gives how many of the names are among them.
func (k *known) match(names []string, list []entry) int {
	seen, n := make([]bool, len(names)), 0
	for i := range list {
		e := &list[i]
		if e.place = k.index.find(names, e); e.place >= 0 && !seen[e.place] {
			seen[e.place] = true
			n++
		}
	}
	return n
}

func (l *lists) know(least uint64, names *envoy.Names) {
	k := &known{weak.Make(names), l.index(names.All())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.known[least]; was != nil {
		l.places -= len(was.index)
	}
	if l.known == nil || l.places+len(k.index) > mostPlaces {
		l.known, l.places = map[uint64]*known{}, 0
	}
	l.known[least] = k
	l.places += len(k.index)
}

// edited gives a list without some names, and then with others.
func (l *lists) edited(from, remove, add *envoy.Names) *envoy.Names {
	switch {
	case remove == nil && add == nil:
		return from
	case from == nil:
		return add
	}
	k := edit{weak.Make(from), digest(remove.All(), add.All())}
	l.mu.Lock()
	n := l.made[k].Value()
	l.mu.Unlock()
	if n != nil {
		return n
	}
	n = l.table.Edited(from, remove, add)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil || len(l.made) >= maxMade {
		l.made = map[edit]weak.Pointer[envoy.Names]{}
	}
	l.made[k] = weak.Make(n)
	return n
}

// common gives the names that both lists have.
func (l *lists) common(a, b *envoy.Names) *envoy.Names {
	return l.table.From(a, slices.DeleteFunc(slices.Clone(a.All()), func(name string) bool { return !b.Has(name) }))
}

// digest tells lists of names apart, whatever is in the names: clients choose them.
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

// forget drops what belongs to the snapshot before, and what nobody holds or has asked for since forget was called last.
func (l *lists) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = nil
	for least, k := range l.known {
		if k.names.Value() == nil {
			delete(l.known, least)
			l.places -= len(k.index)
		}
	}
	for least, c := range l.brought {
		if !c.used {
			l.leave(least)
		}
		c.used = false
	}
}

// extensions tells what extensions with a digest are capable of, if such ones were read before.
func (l *lists) extensions(digest [sha256.Size]byte) (node.Capabilities, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.nodes[digest]
	return c, ok
}

func (l *lists) extend(digest [sha256.Size]byte, c node.Capabilities) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil || len(l.nodes) >= mostNodes {
		l.nodes = map[[sha256.Size]byte]node.Capabilities{}
	}
	l.nodes[digest] = c
}

// scratch gives room for a request's names.
func (l *lists) scratch() *wire { return l.wires.Get().(*wire) }

func (l *lists) release(w *wire) {
	if cap(w.names)+cap(w.leaves)+cap(w.versions)+cap(w.bytes)/64 > mostWire {
		return
	}
	*w = wire{bytes: w.bytes, names: w.names[:0], leaves: w.leaves[:0], versions: w.versions[:0]}
	l.wires.Put(w)
}
