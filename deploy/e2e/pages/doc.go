// Package pages checks that each debug page has the keys of istiod's page, with values of the same types, so that
// readers such as istioctl, Kiali and scripts work.
//
// testdata/istiod.txt describes the answers of istiod 1.31 about the objects of testdata/world.yaml: the paths of keys
// and the types of values, not the values. The test with the tag compat records it again. testdata/absent.txt names the
// paths that this server does not have, and why.
package pages
