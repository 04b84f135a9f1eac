// Package kinds lists the configuration kinds that the control plane reads, one value each, and defines the immutable
// objects and changes that sources create of them. Packages that read the objects define their behaviour.
//
// A source never modifies an object after it has passed it on, so any goroutine may read it without a lock.
package kinds
