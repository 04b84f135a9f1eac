package discovery

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
)

// Limits of the garbage collector.
const (
	// gcFloor is a heap size in bytes below which the collector does not run. While a server starts, its heap grows
	// through every size, and collecting at each would take a fifth of the start.
	gcFloor = 36 << 20
	// gcPercent is GOGC for a larger heap. The live heap is large here and little garbage is made, so a higher value
	// would gain little.
	gcPercent = 40
)

// paceCollector tunes the garbage collector, unless the environment does.
func paceCollector(e *env.Env) {
	if !setsPace(e) {
		pace(4 << 20) // the runtime's minimum heap size
	}
}

func setsPace(e *env.Env) bool { return e.Getenv("GOGC") != "" || e.Getenv("GOMEMLIMIT") != "" }

// pace sets GOGC for a number of live bytes. It runs again after the next collection, until the heap is larger than
// gcFloor.
func pace(live uint64) {
	percent, large := room(live)
	if !large {
		runtime.AddCleanup(new([64]byte), func(struct{}) { pace(liveHeap()) }, struct{}{})
	}
	debug.SetGCPercent(percent)
}

// room returns GOGC for a number of live bytes, and whether the heap is larger than gcFloor.
func room(live uint64) (percent int, large bool) {
	if live*(100+gcPercent)/100 > gcFloor {
		return gcPercent, true
	}
	return int(gcFloor*100/max(live, 1<<20)) - 100, false
}

// liveHeap returns the size of the heap after the last collection, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
