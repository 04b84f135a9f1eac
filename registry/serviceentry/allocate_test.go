package serviceentry

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// holdings returns holdings of few ages.
func holdings(n int) []holding {
	var out []holding
	for i := 0; len(out) < n; i++ {
		out = append(out, holding{registry.ServiceKey{Namespace: "a", Host: fmt.Sprintf("h%d", i)}, time.Unix(int64(i%3), 0),
			uint32(i % 4 / 3 * (1 + i%7))})
	}
	return out
}

func TestAllocationDependsOnlyOnTheHosts(t *testing.T) {
	all := holdings(60)
	const size = 70 // nearly full with all hosts, so that most collide
	rapid.Check(t, func(t *rapid.T) {
		a := newAllocator(DefaultRanges(), size)
		hosts := map[registry.ServiceKey]holding{}
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			h := rapid.SampledFrom(all).Draw(t, "host")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				a.remove(h.key)
				delete(hosts, h.key)
			case 1:
				h.created = time.Unix(9, 0)
				fallthrough
			default:
				a.set(h)
				hosts[h.key] = h
			}
		}
		fresh := newAllocator(DefaultRanges(), size)
		for _, h := range slices.SortedFunc(func(yield func(holding) bool) {
			for _, h := range hosts {
				if !yield(h) {
					return
				}
			}
		}, func(x, y holding) int {
			if x.before(y) {
				return -1
			}
			return 1
		}) {
			fresh.set(h)
		}
		if d := cmp.Diff(fresh.slotOf, a.slotOf); d != "" {
			t.Fatalf("(-in order of age +in this order):\n%s", d)
		}
		if len(a.slots) != len(hosts) || len(a.slotOf) != len(hosts) {
			t.Fatalf("%d hosts have %d slots, %d known", len(hosts), len(a.slots), len(a.slotOf))
		}
	})
}

// TestOlderHostKeepsItsSlot checks that of two hosts with one hash the older has its slot, whatever the order, and that
// the younger one is listed as changed.
func TestOlderHostKeepsItsSlot(t *testing.T) {
	byHash := map[uint32]holding{}
	var a, b holding
	for i := 0; ; i++ {
		h := holding{registry.ServiceKey{Namespace: "a", Host: fmt.Sprint(i)}, time.Unix(int64(i), 0), 0}
		if older, ok := byHash[h.firstSlot()%slotCount]; ok {
			a, b = older, h
			break
		}
		byHash[h.firstSlot()%slotCount] = h
	}
	al := newAllocator(DefaultRanges(), slotCount)
	al.set(b)
	first := al.addresses(b.key)
	clear(al.changed)
	al.set(a)
	if _, listed := al.changed[b.key]; !listed || slices.Equal(first, al.addresses(b.key)) || !slices.Equal(first, al.addresses(a.key)) {
		t.Errorf("older %v, younger %v, was %v, changed %v", al.addresses(a.key), al.addresses(b.key), first, al.changed)
	}
	al.remove(a.key)
	if !slices.Equal(first, al.addresses(b.key)) {
		t.Errorf("after the older went, the younger has %v, not %v", al.addresses(b.key), first)
	}
}

func TestHostsWaitWhereNoSlotIsFree(t *testing.T) {
	const size = 300
	all := holdings(size + 2)
	al := newAllocator(DefaultRanges(), size)
	for _, h := range all {
		al.set(h)
	}
	last := slices.MaxFunc(all, func(x, y holding) int {
		if x.before(y) {
			return -1
		}
		return 1
	})
	if _, waits := al.waiting[last.key]; !waits || len(al.waiting) != 2 || al.addresses(last.key) != nil {
		t.Errorf("%d of %d wait; does the youngest? %v", len(al.waiting), len(all), waits)
	}
	al.remove(all[0].key)
	if len(al.waiting) != 1 || len(al.slotOf) != size {
		t.Errorf("after one went, %d wait and %d have an address", len(al.waiting), len(al.slotOf))
	}
	al.remove(last.key)
	if len(al.waiting) != 0 || len(al.slotOf) != size {
		t.Errorf("after one that waited went, %d wait and %d have an address", len(al.waiting), len(al.slotOf))
	}
}

// TestAllocatedAddressesAreInRange checks that each slot has addresses of its own within the ranges, from which the
// slot follows, and that no address ends in 0 or 255.
func TestAllocatedAddressesAreInRange(t *testing.T) {
	for ranges, want := range map[[2]string]uint32{
		{"240.240.0.0/16", "2001:2::/48"}: slotCount, {"10.0.0.0/8", "fd00::/8"}: slotCount, {"10.1.2.0/23", "fd00::/64"}: 508,
		{"10.1.2.0/24", "fd00::/96"}: 254, {"10.1.2.0/25", "2001:2::/48"}: 126, {"10.1.2.128/25", "2001:2::/48"}: 126,
		{"10.1.2.4/30", "2001:2::/48"}: 2, {"10.1.2.77/24", "fd00::7/64"}: 254,
	} {
		r := Ranges{netip.MustParsePrefix(ranges[0]), netip.MustParsePrefix(ranges[1])}.orDefault()
		if r.slots() != want {
			t.Errorf("%v has %d addresses, want %d", ranges, r.slots(), want)
		}
		al := newAllocator(r, r.slots())
		seen := map[string]bool{}
		for i := range r.slots() {
			k := registry.ServiceKey{Host: fmt.Sprint(i)}
			al.slotOf[k] = i
			l := al.addresses(k)
			four, six := netip.MustParseAddr(l[0]), netip.MustParseAddr(l[1])
			slot, ok := r.slotOf(four)
			if last := four.As4()[3]; !r.IPv4.Contains(four) || !r.IPv6.Contains(six) || last == 0 || last == 255 || seen[l[0]] ||
				seen[l[1]] || !ok || slot != i {
				t.Fatalf("%v: slot %d is %v, which is in slot %d", ranges, i, l, slot)
			}
			seen[l[0]], seen[l[1]] = true, true
		}
	}
	if got := (Ranges{}).orDefault(); got != DefaultRanges() {
		t.Errorf("default %v", got)
	}
}

// TestAssignedAddressesStay checks that an address assigned by another control plane stays, and that no other host has
// it.
func TestAssignedAddressesStay(t *testing.T) {
	entry := func(name, status string) kinds.Change {
		o := &kinds.Object{
			Key: kinds.Key{Kind: kinds.ServiceEntry, Namespace: "a", Name: name},
			Spec: &networkingv1.ServiceEntry{Hosts: []string{name + ".example"}, Resolution: networkingv1alpha3.ServiceEntry_DNS,
				Ports: []*networkingv1alpha3.ServicePort{{Number: 80, Name: "http"}}},
		}
		if status != "" {
			o.Annotations = map[string]string{kinds.AnnotationAddresses: status}
		}
		return kinds.Change{Key: o.Key, Object: o}
	}
	r := New(Options{})
	of := func(name string) []string {
		return r.Service(registry.ServiceKey{Namespace: "a", Host: name + ".example"}).AutoAddress
	}
	r.Apply([]kinds.Change{entry("own", "")})
	own := of("own")
	// This entry is assigned the address that the first host has by its hash.
	r.Apply([]kinds.Change{entry("given", " 2001:2::7\n "+own[0]), entry("part", "part.example 240.240.0.9\nother.example 240.240.0.10")})
	if got := of("given"); !slices.Equal(got, []string{own[0], "2001:2::7"}) {
		t.Errorf("given %v", got)
	}
	if got := of("own"); slices.Equal(got, own) || len(got) != 2 {
		t.Errorf("two hosts have %v", got)
	}
	if got := of("part"); !slices.Equal(got, []string{"240.240.0.9"}) {
		t.Errorf("of its host alone: %v", got)
	}
	r.Apply([]kinds.Change{entry("given", "")})
	if got := of("own"); !slices.Equal(got, own) {
		t.Errorf("after the other let go: %v, was %v", got, own)
	}
}
