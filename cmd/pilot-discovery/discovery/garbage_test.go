package discovery

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
)

// Small heaps are left alone up to the floor, and large ones get their share.
func TestRoomForGarbage(t *testing.T) {
	for _, c := range []struct {
		live, percent int
		large         bool
	}{{0, 100*gcFloor>>20 - 100, false}, {gcFloor / 3, 200, false}, {gcFloor / 2, 100, false}, {gcFloor, gcPercent, true},
		{10 * gcFloor, gcPercent, true}} {
		if percent, large := room(uint64(c.live)); percent != c.percent || large != c.large {
			t.Errorf("with %d bytes live: %d %%, large %v; want %d %%, %v", c.live, percent, large, c.percent, c.large)
		}
	}
}

// Who sets the pace in the environment keeps it.
func TestTheEnvironmentSetsThePace(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT", ""} {
		e := env.New([]string{name + "=1"})
		if got := setsPace(&e); got != (name != "") {
			t.Errorf("%q: %v", name, got)
		}
	}
}
