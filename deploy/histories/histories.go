package histories

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed to begin with: RAPID_SEED, or a random one if that is not set or 0. It logs the value that
// repeats a random run.
func Seed(t testing.TB) (seed uint64, fixed bool) {
	t.Helper()
	if text := os.Getenv("RAPID_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("RAPID_SEED: %v", err)
		}
	}
	if seed != 0 {
		return seed, true
	}
	seed = rand.Uint64()>>16 + 1
	t.Logf("RAPID_SEED=%d repeats this run", seed)
	return seed, false
}
