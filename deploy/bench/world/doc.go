// Package world is the mesh that control planes are measured with: services with pods and EndpointSlices,
// VirtualServices and DestinationRules. Every object is made from its number, so the same world can be made anywhere,
// and grown from a smaller one.
//
// Only Clients write to an API server. The package holds no state, and starts goroutines only while a Seed function
// runs.
package world
