package serviceentry

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/istiod-lite/istiod-lite/registry"
)

// Ranges are the ranges of addresses that hosts without addresses get. The zero value means 240.240.0.0/16 and
// 2001:2::/48.
type Ranges struct {
	IPv4 netip.Prefix // of at most LongestIPv4 bits
	IPv6 netip.Prefix // of at most LongestIPv6 bits
}

// The lengths of the smallest ranges.
const (
	LongestIPv4 = 30
	LongestIPv6 = 96
)

// DefaultRanges returns the ranges of istiod.
func DefaultRanges() Ranges {
	return Ranges{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}
}

// orDefault returns the ranges, with the default in place of one that is not set.
func (r Ranges) orDefault() Ranges {
	d := DefaultRanges()
	if !r.IPv4.IsValid() {
		r.IPv4 = d.IPv4
	}
	if !r.IPv6.IsValid() {
		r.IPv6 = d.IPv6
	}
	return Ranges{r.IPv4.Masked(), r.IPv6.Masked()}
}

// slotCount is the maximum number of addresses that are allocated.
const slotCount = 256 * perNet

// perNet is the number of addresses of 256 that are allocated. Addresses that end in 0 or 255 are left out, because
// some systems refuse them.
const perNet = 254

// slots returns the number of addresses of the ranges.
func (r Ranges) slots() uint32 {
	if host := 32 - r.IPv4.Bits(); host < 8 {
		return 1<<host - 2
	} else if host < 16 {
		return perNet << (host - 8)
	}
	return slotCount
}

// addresses returns the addresses of a slot. The IPv6 address ends in the same four bytes as the IPv4 address.
func (r Ranges) addresses(slot uint32) []string {
	base := r.IPv4.Addr().As4()
	v4 := base
	binary.BigEndian.PutUint32(v4[:], binary.BigEndian.Uint32(base[:])+slot/perNet*256+1+slot%perNet)
	v6 := r.IPv6.Addr().As16()
	copy(v6[12:], v4[:])
	return []string{netip.AddrFrom4(v4).String(), netip.AddrFrom16(v6).String()}
}

// slotOf returns the slot of an IPv4 address. ok is false if it is in none.
func (r Ranges) slotOf(ip netip.Addr) (slot uint32, ok bool) {
	if !ip.Is4() || !r.IPv4.Contains(ip) {
		return 0, false
	}
	base, b := r.IPv4.Addr().As4(), ip.As4()
	offset := binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:])
	last := offset % 256
	slot = offset/256*perNet + last - 1
	return slot, last != 0 && last != 255 && slot < r.slots()
}

// allocator allocates one slot to each host. A host's slot is the first free one, starting from the host's hash. An
// older host takes precedence over a younger one, which moves to the next slot. So the result does not depend on the
// order in which hosts were added and removed, and a host's address changes only because of an older host. An address
// that another control plane allocated and wrote into the status of the entry stays, because clients may remember it.
type allocator struct {
	ranges   Ranges
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

// newAllocator returns an allocator of the first addresses of ranges.
func newAllocator(r Ranges, size uint32) *allocator {
	return &allocator{r, map[registry.ServiceKey][]string{}, size, map[uint32]holding{}, map[registry.ServiceKey]uint32{},
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
		if ip, err := netip.ParseAddr(text); err == nil {
			if slot, ok := a.ranges.slotOf(ip); ok {
				return slot + 1
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
	return a.ranges.addresses(i)
}
