package quota

import (
	"math"
	"slices"
	"testing"
)

// TestPool checks that the last tenth of a pool is for holders that have little of it, that others wait for the rest,
// and that those that leave make room, whether they have a place or wait for one.
func TestPool(t *testing.T) {
	p := NewPool[string](20)
	has := func(got <-chan struct{}) bool {
		select {
		case <-got:
			return true
		default:
			return false
		}
	}
	var leaves []func()
	for i := range 18 {
		got, leave := p.Enter("flood")
		if leaves = append(leaves, leave); !has(got) {
			t.Fatalf("place %d of a pool of 20 is not granted", i)
		}
	}
	waits, _ := p.Enter("flood")
	gone, goes := p.Enter("flood")
	first, leave := p.Enter("web")
	second, _ := p.Enter("api")
	third, _ := p.Enter("last")
	if has(waits) || has(gone) || !has(first) || !has(second) || has(third) {
		t.Errorf("flood: %v and %v, others: %v, %v and %v", has(waits), has(gone), has(first), has(second), has(third))
	}
	leaves[0]()
	leaves[0]() // the second time it counts no more
	if !has(third) || has(waits) {
		t.Errorf("a holder of little: %v; one of most: %v", has(third), has(waits))
	}
	goes()
	leave()
	leaves[1]()
	if has(waits) {
		t.Error("a holder of most has a place of the last tenth")
	}
	leaves[2]()
	if !has(waits) || has(gone) {
		t.Errorf("one that waits: %v; one that has gone: %v", has(waits), has(gone))
	}
	var host []func()
	for range 2 {
		got, leave := p.Enter("")
		if host = append(host, leave); !has(got) {
			t.Error("a peer without a bound waits")
		}
	}
	for _, leave := range append(host, leaves[3:]...) {
		leave()
	}
	if p.free != 17 || p.held["flood"] != 1 || len(p.held) != 3 {
		t.Errorf("%d places are free, %v", p.free, p.held)
	}
}

// TestPoolIsFair checks that holders that come again and again for little do not keep a holder of much waiting.
func TestPoolIsFair(t *testing.T) {
	p := NewPool[int](20)
	type place struct {
		holder int
		got    <-chan struct{}
		leave  func()
	}
	var all []place
	enter := func(holder int) {
		got, leave := p.Enter(holder)
		all = append(all, place{holder, got, leave})
	}
	for range 100 {
		enter(0)
	}
	for holder := range 28 {
		enter(1 + holder/2)
	}
	left := 100
	for round := 0; left > 0; round++ {
		if round == 15 { // 20 places and 128 requests: some 7 rounds
			t.Fatalf("after %d rounds %d requests of one holder wait", round, left)
		}
		for _, x := range slices.Clone(all) {
			select {
			case <-x.got:
			default:
				continue
			}
			x.leave()
			all = slices.DeleteFunc(all, func(y place) bool { return y.got == x.got })
			if x.holder == 0 {
				left--
			} else {
				enter(x.holder)
			}
		}
	}
}

// TestSmallPool checks that a holder may have all of a pool that is too small to share.
func TestSmallPool(t *testing.T) {
	p := NewPool[string](1)
	_, leave := p.Enter("a")
	got, _ := p.Enter("a")
	leave()
	select {
	case <-got:
	default:
		t.Error("the one place is not granted again")
	}
}

// TestResize checks that a pool that shrinks takes no place away, and that one that grows grants what waits, in order.
func TestResize(t *testing.T) {
	p := NewPool[int](2)
	_, first := p.Enter(1)
	_, second := p.Enter(2)
	p.Resize(0)
	third, _ := p.Enter(3)
	fourth, _ := p.Enter(4)
	waits := func(want int) {
		t.Helper()
		if n := p.Waiting(); n != want {
			t.Errorf("%d wait, want %d", n, want)
		}
	}
	first()
	waits(2)
	p.Resize(2)
	waits(1)
	<-third
	second()
	waits(0)
	<-fourth
	p.Resize(math.MaxInt)
	if _, leave := p.Enter(5); p.free != math.MaxInt-3 {
		t.Errorf("%d places are free", p.free)
	} else {
		leave()
	}
}
