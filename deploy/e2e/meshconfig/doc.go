// Package meshconfig tests what real Envoys do by settings of the mesh configuration: the same calls in a mesh without
// any, and in one that has many of them. It has no code of its own besides its tests.
package meshconfig
