// Package inspecttest compares, for tests, what proxies of a mesh are sent with what the real istiod sent them.
//
// The folder testdata/istiod of the calling package has a world, nodes, and a recording for each case: a txtar file
// with the objects that the case adds to the world, its mesh configuration, and what was recorded. A recording can only
// be made from an istiod.
package inspecttest
