package histories

import (
	"flag"
	"strconv"
	"testing"
)

// NoRace leaves a test out under the race detector, which has nothing to find in it: the test starts no goroutine.
// `make norace` runs it.
func NoRace(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("it starts no goroutine: `make norace` runs it")
	}
}

// FewerWithRace has rapid make a fifth of its checks in the test if the race detector watches: the test starts no
// goroutine, and runs at no time beside another. `make norace` makes all of them.
func FewerWithRace(t testing.TB) {
	t.Helper()
	if !Raced {
		return
	}
	checks := flag.Lookup("rapid.checks")
	all := checks.Value.String()
	n, err := strconv.Atoi(all)
	if err == nil {
		err = checks.Value.Set(strconv.Itoa((n + 4) / 5))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Value.Set(all) }) // it was that before
}
