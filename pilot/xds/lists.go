package xds

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"weak"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// lists makes the lists of names that streams subscribe to, which are the same for the streams of a cohort and change in the same way. It holds none of them: they
// are there as long as a stream subscribes to them. Safe for concurrent use.
type lists struct {
	table envoy.NameTable

	mu   sync.Mutex
	made map[edit]weak.Pointer[envoy.Names]
}

// edit is a list and a digest of what is taken from it and added.
type edit struct {
	from   weak.Pointer[envoy.Names]
	digest [sha256.Size]byte
}

// of gives the list of some names, which stay the caller's. star is none.
func (l *lists) of(names []string) *envoy.Names {
	return l.table.Of(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == star }))
}

// edited gives a list without some names, and then with others.
func (l *lists) edited(from *envoy.Names, remove, add []string) *envoy.Names {
	switch {
	case len(remove) == 0 && len(add) == 0:
		return from
	case from == nil:
		return l.of(add)
	}
	k := edit{weak.Make(from), digest(remove, add)}
	l.mu.Lock()
	n := l.made[k].Value()
	l.mu.Unlock()
	if n != nil {
		return n
	}
	gone := slices.Sorted(slices.Values(remove))
	all := slices.DeleteFunc(slices.Clone(from.All()), func(n string) bool { _, ok := slices.BinarySearch(gone, n); return ok })
	n = l.table.From(from, slices.DeleteFunc(append(all, add...), func(n string) bool { return n == star }))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil || len(l.made) >= maxMade {
		l.made = map[edit]weak.Pointer[envoy.Names]{}
	}
	l.made[k] = weak.Make(n)
	return n
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

func (l *lists) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = nil
}
