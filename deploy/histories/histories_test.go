package histories

import (
	"testing"

	"pgregory.net/rapid"
)

// The variable sets the seed. Without it, or with 0, the seed is random.
func TestSeed(t *testing.T) {
	t.Setenv("RAPID_SEED", "0x10")
	if seed, fixed := Seed(t); seed != 16 || !fixed {
		t.Errorf("seed %d, fixed %v", seed, fixed)
	}
	for _, text := range []string{"", "0"} {
		t.Setenv("RAPID_SEED", text)
		one, fixed := Seed(t)
		two, _ := Seed(t)
		if one == 0 || one == two || fixed {
			t.Errorf("RAPID_SEED=%q: seeds %d and %d, fixed %v", text, one, two, fixed)
		}
	}
}

// Under the race detector a test makes a fifth of its checks, and a test without goroutines is skipped. Without the
// detector nothing changes.
func TestLength(t *testing.T) {
	count := func(before func(testing.TB)) (checks int) {
		t.Run("", func(t *testing.T) {
			before(t)
			rapid.Check(t, func(*rapid.T) { checks++ })
		})
		return checks
	}
	all := count(func(testing.TB) {})
	fewer, none := all, all
	if Raced {
		fewer, none = (all+4)/5, 0
	}
	for what, n := range map[string][2]int{"NoRace": {count(NoRace), none}, "FewerWithRace": {count(FewerWithRace), fewer},
		"afterwards": {count(func(testing.TB) {}), all}} {
		if n[0] != n[1] {
			t.Errorf("%s: %d checks of %d, want %d", what, n[0], all, n[1])
		}
	}
}
