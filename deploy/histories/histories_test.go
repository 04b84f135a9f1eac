package histories

import "testing"

// The variable decides, and only without it, or with 0, is the seed random.
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
