package autoregistration

import (
	"math/rand/v2"
	"sync"
)

// lockedRand is a source of random numbers for stores that several workers call.
type lockedRand struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newRand(seed uint64) *lockedRand { return &lockedRand{rng: rand.New(rand.NewPCG(seed, 1))} }

func (r *lockedRand) IntN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}
