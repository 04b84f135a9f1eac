// Package pages holds that each debug page has the keys that istiod's has, with values of the same types: readers, such
// as istioctl, Kiali and scripts, find what they look for.
//
// testdata/istiod.txt is what istiod 1.31 was seen to answer about the objects of testdata/world.yaml: the paths of
// keys and the types of values, not the values. The test with the tag compat records it anew. testdata/absent.txt names
// the paths that this server does not have, and why.
package pages
