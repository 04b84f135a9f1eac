package discovery

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
)

// How much garbage there may be.
const (
	// A heap up to this size is left alone: while a server starts it grows through every size, and to collect at each
	// would cost a fifth of the start.
	gcFloor = 36 << 20
	// What a larger heap may have, in percent of what lives: that is large here, and what is made of it small, so that
	// more room would bring little.
	gcPercent = 40
)

// paceCollector sets the pace of the garbage collector, unless the environment does.
func paceCollector(e *env.Env) {
	if !setsPace(e) {
		pace(4 << 20) // the least that the runtime takes for the size of a heap
	}
}

func setsPace(e *env.Env) bool { return e.Getenv("GOGC") != "" || e.Getenv("GOMEMLIMIT") != "" }

// pace sets how far a heap with that many live bytes may grow. It looks again after the next collection, until the heap
// is larger than the floor.
func pace(live uint64) {
	percent, large := room(live)
	if !large {
		runtime.AddCleanup(new([64]byte), func(struct{}) { pace(liveHeap()) }, struct{}{})
	}
	debug.SetGCPercent(percent)
}

// room is how much garbage there may be, in percent of what lives.
func room(live uint64) (percent int, large bool) {
	if live*(100+gcPercent)/100 > gcFloor {
		return gcPercent, true
	}
	return int(gcFloor*100/max(live, 1<<20)) - 100, false
}

// liveHeap is what the last collection left, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
