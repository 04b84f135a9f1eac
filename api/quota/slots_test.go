package quota

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestSlots checks that a holder has no more slots than it may, that holders take turns in the order in which they
// came, and that work whose context ends takes no slot.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots[string](3, 2)
		var mu sync.Mutex
		var began []string
		next := map[string]chan struct{}{}
		var all sync.WaitGroup
		work := func(ctx context.Context, k string) {
			mu.Lock()
			if next[k] == nil {
				next[k] = make(chan struct{})
			}
			end := next[k]
			mu.Unlock()
			all.Go(func() {
				leave, err := s.Take(ctx, k)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				began = append(began, k)
				mu.Unlock()
				<-end
				leave()
			})
			synctest.Wait()
		}
		check := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(began, want) {
				t.Errorf("%s: %v have begun, want %v", what, began, want)
			}
			began = nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 {
			work(t.Context(), "a")
		}
		check("one holder", "a", "a")
		work(t.Context(), "b")
		work(t.Context(), "b")
		work(ctx, "c")
		work(ctx, "c")
		work(t.Context(), "d")
		check("others", "b")
		cancel()
		synctest.Wait()
		if n := s.Waiting(); n != 8+1+1 {
			t.Errorf("%d wait", n)
		}
		next["a"] <- struct{}{}
		check("one of the first has ended", "a") // it came first
		next["b"] <- struct{}{}
		check("another one has ended", "b")
		next["a"] <- struct{}{}
		check("one more has ended", "d")
		for _, end := range next {
			close(end)
		}
		all.Wait()
		if s.free != 3 || len(s.held)+len(s.waiting)+len(s.order) != 0 {
			t.Errorf("in the end %d slots are free, and %v, %v and %v are left", s.free, s.held, s.waiting, s.order)
		}
	})
}

// TestTrySlots checks that a slot is taken without waiting where the holder may have one, and that the zero holder may
// have all.
func TestTrySlots(t *testing.T) {
	s := NewSlots[string](4, 2)
	var leave []func()
	for i, x := range []struct {
		holder string
		taken  bool
	}{{"a", true}, {"a", true}, {"a", false}, {"", true}, {"", true}, {"b", false}} {
		got := s.Try(x.holder)
		if (got != nil) != x.taken {
			t.Errorf("step %d: taken: %t", i, got != nil)
		}
		if got != nil {
			leave = append(leave, got)
		}
	}
	for _, leave := range leave {
		leave()
	}
	for range 4 {
		if s.Try("") == nil {
			t.Error("the zero holder is bounded")
		}
	}
}

// TestSlotsAreNotLost checks that a slot that work gets while its context ends is used or free.
func TestSlotsAreNotLost(t *testing.T) {
	s := NewSlots[int](2, 1)
	var all sync.WaitGroup
	for i := range 2000 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(cancel)
			if leave, err := s.Take(ctx, i%5); err == nil {
				leave()
			}
		})
	}
	all.Wait()
	if s.free != 2 || len(s.held)+len(s.waiting)+len(s.order) != 0 {
		t.Errorf("in the end %d slots are free, and %v, %v and %v are left", s.free, s.held, s.waiting, s.order)
	}
}
