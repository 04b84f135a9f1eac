package snapshot

// Snapshot is one revision of the world. It takes the place of Istio's PushContext.
type Snapshot struct {
	Revision uint64 // counts commits, from 1
	Delta    Delta
}
