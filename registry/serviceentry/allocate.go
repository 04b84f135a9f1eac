package serviceentry

import (
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/istiod-lite/istiod-lite/registry"
)

// slotCount is the number of addresses of 240.240.0.0/16 that are allocated. Addresses that end in 0 or 255 are left
// out, because some systems refuse them. The address of a slot in 2001:2::/48 ends in the same four bytes.
const slotCount = 256 * 254

// allocator allocates one slot to each host. A host's slot is the first free one, starting from the host's hash. An
// older host takes precedence over a younger one, which moves to the next slot. So the result does not depend on the
// order in which hosts were added and removed, and a host's address changes only because of an older host. An address
// that another control plane allocated and wrote into the status of the entry stays, because clients may remember it.
type allocator struct {
	assigned map[registry.ServiceKey][]string // addresses assigned by another control plane

	size    uint32
	slots   map[uint32]holding
	slotOf  map[registry.ServiceKey]uint32
	waiting map[registry.ServiceKey]holding // hosts for which no slot is free
	changed map[registry.ServiceKey]struct{}
}

// holding is a host that has a slot, or waits for one.
type holding struct {
	key       registry.ServiceKey
	created   time.Time
	preferred uint32 // one more than the slot that another control plane assigned; 0 if there is none
}

func newAllocator(size uint32) *allocator {
	return &allocator{map[registry.ServiceKey][]string{}, size, map[uint32]holding{}, map[registry.ServiceKey]uint32{},
		map[registry.ServiceKey]holding{}, map[registry.ServiceKey]struct{}{}}
}

func (h holding) before(o holding) bool {
	switch {
	case (h.preferred > 0) != (o.preferred > 0):
		return h.preferred > 0
	case !h.created.Equal(o.created):
		return h.created.Before(o.created)
	case h.key.Namespace != o.key.Namespace:
		return h.key.Namespace < o.key.Namespace
	}
	return h.key.Host < o.key.Host
}

func (h holding) firstSlot() uint32 {
	if h.preferred > 0 {
		return h.preferred - 1
	}
	f := fnv.New32a()
	f.Write([]byte(h.key.Namespace + "/" + h.key.Host))
	return f.Sum32()
}

func (a *allocator) set(h holding) {
	if i, ok := a.slotOf[h.key]; ok {
		if a.slots[i].created.Equal(h.created) && a.slots[i].preferred == h.preferred {
			return
		}
		a.remove(h.key)
	}
	a.insert(h)
}

func (a *allocator) insert(h holding) {
	i := h.firstSlot() % a.size
	for range a.size {
		occupant, taken := a.slots[i]
		if !taken || h.before(occupant) {
			a.slots[i], a.slotOf[h.key] = h, i
			a.changed[h.key] = struct{}{}
			if !taken {
				return
			}
			h = occupant
		}
		i = (i + 1) % a.size
	}
	delete(a.slotOf, h.key)
	a.waiting[h.key] = h
	a.changed[h.key] = struct{}{}
}

func (a *allocator) remove(k registry.ServiceKey) {
	delete(a.waiting, k)
	i, ok := a.slotOf[k]
	if !ok {
		return
	}
	delete(a.slotOf, k)
	delete(a.slots, i)
	// A host in one of the next slots may have skipped this one. All hosts up to the next free slot are inserted again.
	var reinsert []holding
	for i = (i + 1) % a.size; ; i = (i + 1) % a.size {
		h, taken := a.slots[i]
		if !taken {
			break
		}
		delete(a.slots, i)
		delete(a.slotOf, h.key)
		reinsert = append(reinsert, h)
	}
	for _, h := range a.waiting {
		reinsert = append(reinsert, h)
	}
	clear(a.waiting)
	for _, h := range reinsert {
		a.insert(h)
	}
}

// assign stores the addresses that another control plane assigned to a host, IPv4 first, or deletes them if there are
// none. It returns the preferred slot for these addresses, see holding.
func (a *allocator) assign(k registry.ServiceKey, addresses []string) (seat uint32) {
	if len(addresses) == 0 {
		delete(a.assigned, k)
		return 0
	}
	a.assigned[k] = addresses
	for _, text := range addresses {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
			if b := ip.As4(); b[0] == 240 && b[1] == 240 && b[3] != 0 && b[3] != 255 {
				return uint32(b[2])*254 + uint32(b[3])
			}
		}
	}
	return 0
}

func (a *allocator) addresses(k registry.ServiceKey) []string {
	if given := a.assigned[k]; given != nil {
		return given
	}
	i, ok := a.slotOf[k]
	if !ok {
		return nil
	}
	v4 := [4]byte{240, 240, byte(i / 254), byte(1 + i%254)}
	v6 := [16]byte{0x20, 0x01, 0, 2}
	copy(v6[12:], v4[:])
	return []string{netip.AddrFrom4(v4).String(), netip.AddrFrom16(v6).String()}
}
