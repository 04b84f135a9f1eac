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

// crowd gives hosts of few ages.
func crowd(n int) []holder {
	var out []holder
	for i := 0; len(out) < n; i++ {
		out = append(out, holder{registry.ServiceKey{Namespace: "a", Host: fmt.Sprintf("h%d", i)}, time.Unix(int64(i%3), 0), uint32(i % 4 / 3 * (1 + i%7))})
	}
	return out
}

func TestAllotmentDependsOnlyOnWhoIsThere(t *testing.T) {
	all := crowd(60)
	const size = 70 // nearly full when all are there, so that most collide
	rapid.Check(t, func(t *rapid.T) {
		a := newAllotment(size)
		there := map[registry.ServiceKey]holder{}
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			h := rapid.SampledFrom(all).Draw(t, "host")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				a.remove(h.key)
				delete(there, h.key)
			case 1:
				h.created = time.Unix(9, 0)
				fallthrough
			default:
				a.set(h)
				there[h.key] = h
			}
		}
		fresh := newAllotment(size)
		for _, h := range slices.SortedFunc(func(yield func(holder) bool) {
			for _, h := range there {
				if !yield(h) {
					return
				}
			}
		}, func(x, y holder) int {
			if x.before(y) {
				return -1
			}
			return 1
		}) {
			fresh.set(h)
		}
		if d := cmp.Diff(fresh.of, a.of); d != "" {
			t.Fatalf("(-in order of age +in this order):\n%s", d)
		}
		if len(a.slots) != len(there) || len(a.of) != len(there) {
			t.Fatalf("%d hosts have %d slots, %d known", len(there), len(a.slots), len(a.of))
		}
	})
}

// Two hosts of one hash: the older keeps its slot whoever comes first, and the younger is told of its move.
func TestAllotmentDisplaces(t *testing.T) {
	byHash := map[uint32]holder{}
	var a, b holder
	for i := 0; ; i++ {
		h := holder{registry.ServiceKey{Namespace: "a", Host: fmt.Sprint(i)}, time.Unix(int64(i), 0), 0}
		if older, ok := byHash[h.hash()%slots]; ok {
			a, b = older, h
			break
		}
		byHash[h.hash()%slots] = h
	}
	al := newAllotment(slots)
	al.set(b)
	first := al.addresses(b.key)
	clear(al.moved)
	al.set(a)
	if _, told := al.moved[b.key]; !told || slices.Equal(first, al.addresses(b.key)) || !slices.Equal(first, al.addresses(a.key)) {
		t.Errorf("older %v, younger %v, was %v, moved %v", al.addresses(a.key), al.addresses(b.key), first, al.moved)
	}
	al.remove(a.key)
	if !slices.Equal(first, al.addresses(b.key)) {
		t.Errorf("after the older went, the younger has %v, not %v", al.addresses(b.key), first)
	}
}

func TestAllotmentFull(t *testing.T) {
	const size = 300
	all := crowd(size + 2)
	al := newAllotment(size)
	for _, h := range all {
		al.set(h)
	}
	last := slices.MaxFunc(all, func(x, y holder) int {
		if x.before(y) {
			return -1
		}
		return 1
	})
	if _, waits := al.waiting[last.key]; !waits || len(al.waiting) != 2 || al.addresses(last.key) != nil {
		t.Errorf("%d of %d wait; does the youngest? %v", len(al.waiting), len(all), waits)
	}
	al.remove(all[0].key)
	if len(al.waiting) != 1 || len(al.of) != size {
		t.Errorf("after one went, %d wait and %d have an address", len(al.waiting), len(al.of))
	}
	al.remove(last.key)
	if len(al.waiting) != 0 || len(al.of) != size {
		t.Errorf("after one that waited went, %d wait and %d have an address", len(al.waiting), len(al.of))
	}
}

func TestAllottedAddresses(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")
	al := newAllotment(slots)
	seen := map[string]bool{}
	for i := range uint32(slots) {
		k := registry.ServiceKey{Host: fmt.Sprint(i)}
		al.of[k] = i
		l := al.addresses(k)
		four, six := netip.MustParseAddr(l[0]), netip.MustParseAddr(l[1])
		if last := four.As4()[3]; !v4.Contains(four) || !v6.Contains(six) || last == 0 || last == 255 || seen[l[0]] || seen[l[1]] {
			t.Fatalf("slot %d is %v", i, l)
		}
		seen[l[0]], seen[l[1]] = true, true
	}
}

// What another control plane has allotted stays, and is nobody else's.
func TestGivenAddressesStay(t *testing.T) {
	entry := func(name, status string) kinds.Change {
		o := &kinds.Object{
			Key:  kinds.Key{Kind: kinds.ServiceEntry, Namespace: "a", Name: name},
			Spec: &networkingv1.ServiceEntry{Hosts: []string{name + ".example"}, Resolution: networkingv1alpha3.ServiceEntry_DNS, Ports: []*networkingv1alpha3.ServicePort{{Number: 80, Name: "http"}}},
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
	// Another is given the very address that the first has by its hash.
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
