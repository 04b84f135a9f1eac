package serviceentry

import (
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/istiod-lite/istiod-lite/registry"
)

// slots is how many addresses of 240.240.0.0/16 are allotted: those that end in 0 or 255 are not, for some systems refuse them. The address of a slot in
// 2001:2::/48 ends in the same four bytes.
const slots = 256 * 254

// allotment gives each host one slot. A host's slot is the first free one from its hash on, where an older host takes precedence over a younger and
// whom it displaces moves on: hence the outcome is the same in whatever order hosts came and went, and the address of a host moves only for an older one.
// What another control plane has allotted, and written into the status of the entry, stays: clients may remember it.
type allotment struct {
	given map[registry.ServiceKey][]string // by another control plane

	size    uint32
	slots   map[uint32]holder
	of      map[registry.ServiceKey]uint32
	waiting map[registry.ServiceKey]holder // those for whom nothing is left
	moved   map[registry.ServiceKey]struct{}
}

type holder struct {
	key     registry.ServiceKey
	created time.Time
	seat    uint32 // one more than the slot that another control plane has given it; 0: none
}

func newAllotment(size uint32) *allotment {
	return &allotment{map[registry.ServiceKey][]string{}, size, map[uint32]holder{}, map[registry.ServiceKey]uint32{}, map[registry.ServiceKey]holder{}, map[registry.ServiceKey]struct{}{}}
}

func (h holder) before(o holder) bool {
	switch {
	case (h.seat > 0) != (o.seat > 0):
		return h.seat > 0
	case !h.created.Equal(o.created):
		return h.created.Before(o.created)
	case h.key.Namespace != o.key.Namespace:
		return h.key.Namespace < o.key.Namespace
	}
	return h.key.Host < o.key.Host
}

func (h holder) hash() uint32 {
	if h.seat > 0 {
		return h.seat - 1
	}
	f := fnv.New32a()
	f.Write([]byte(h.key.Namespace + "/" + h.key.Host))
	return f.Sum32()
}

func (a *allotment) set(h holder) {
	if i, ok := a.of[h.key]; ok {
		if a.slots[i].created.Equal(h.created) && a.slots[i].seat == h.seat {
			return
		}
		a.remove(h.key)
	}
	a.insert(h)
}

func (a *allotment) insert(h holder) {
	i := h.hash() % a.size
	for range a.size {
		sits, taken := a.slots[i]
		if !taken || h.before(sits) {
			a.slots[i], a.of[h.key] = h, i
			a.moved[h.key] = struct{}{}
			if !taken {
				return
			}
			h = sits
		}
		i = (i + 1) % a.size
	}
	delete(a.of, h.key)
	a.waiting[h.key] = h
	a.moved[h.key] = struct{}{}
}

func (a *allotment) remove(k registry.ServiceKey) {
	delete(a.waiting, k)
	i, ok := a.of[k]
	if !ok {
		return
	}
	delete(a.of, k)
	delete(a.slots, i)
	// Whoever sits behind may have passed this slot by: up to the next free one, all choose anew.
	var again []holder
	for i = (i + 1) % a.size; ; i = (i + 1) % a.size {
		h, taken := a.slots[i]
		if !taken {
			break
		}
		delete(a.slots, i)
		delete(a.of, h.key)
		again = append(again, h)
	}
	for _, h := range a.waiting {
		again = append(again, h)
	}
	clear(a.waiting)
	for _, h := range again {
		a.insert(h)
	}
}

// give notes the addresses that another control plane has given to a host, IPv4 first; none takes the note away. It gives the seat that they stand for.
func (a *allotment) give(k registry.ServiceKey, addresses []string) (seat uint32) {
	if len(addresses) == 0 {
		delete(a.given, k)
		return 0
	}
	a.given[k] = addresses
	for _, text := range addresses {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
			if b := ip.As4(); b[0] == 240 && b[1] == 240 && b[3] != 0 && b[3] != 255 {
				return uint32(b[2])*254 + uint32(b[3])
			}
		}
	}
	return 0
}

func (a *allotment) addresses(k registry.ServiceKey) []string {
	if given := a.given[k]; given != nil {
		return given
	}
	i, ok := a.of[k]
	if !ok {
		return nil
	}
	v4 := [4]byte{240, 240, byte(i / 254), byte(1 + i%254)}
	v6 := [16]byte{0x20, 0x01, 0, 2}
	copy(v6[12:], v4[:])
	return []string{netip.AddrFrom4(v4).String(), netip.AddrFrom16(v6).String()}
}
