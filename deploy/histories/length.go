package histories

import (
	"flag"
	"strconv"
	"testing"
)

// NoRace skips a test without goroutines under the race detector, which can find nothing in it. `make norace` runs the
// test.
func NoRace(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("it starts no goroutine: `make norace` runs it")
	}
}

// FewerWithRace reduces rapid's checks in a test without goroutines to a fifth under the race detector. The test must
// not run in parallel with another. `make norace` makes all checks.
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
	t.Cleanup(func() { _ = checks.Value.Set(all) }) // restores the value
}
