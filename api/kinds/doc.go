// Package kinds lists the configuration kinds that the control plane understands, one value each, and the frozen
// objects and changes that sources make of them. It holds no behaviour: what an object means is decided by those who
// read it.
//
// Objects are never modified once a source has handed them on; whoever holds one may read it from any goroutine without
// a lock.
package kinds
