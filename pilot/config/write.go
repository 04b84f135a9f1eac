package config

import (
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Write describes how a version of an object came about, beside what the object says.
type Write struct {
	Key        kinds.Key
	Generation int64     // generation of the version; 0 if the kind has none
	Manager    string    // field manager of the newest write that is not to the status; empty if unknown
	Time       time.Time // time of that write; zero if unknown
}

// Writes takes the Write of each version that a source reads after its first load, before the version is handed over.
// It must be safe for concurrent use and must not block.
type Writes interface{ Wrote(Write) }
