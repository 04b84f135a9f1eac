// Package world is the mesh that control planes are measured on: services with pods and EndpointSlices, VirtualServices
// and DestinationRules. Every object follows from its number, so that the same world can be made anywhere and grown
// from a smaller one.
//
// It decides nothing about how objects get to an API server but for Seed. It holds no state and runs goroutines in Seed
// alone.
package world
