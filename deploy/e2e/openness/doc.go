// Package openness searches for objects with which this control plane leaves more open than the real istiod does.
//
// Both control planes read the same API server, which has the custom resources and no webhooks, so that an odd
// object reaches both. Each world is one to three objects in namespaces of its own. A sidecar and a gateway of those
// namespaces connect to both control planes, and Compare says where what this control plane sends is more open: a
// request passes that istiod's configuration refuses, TLS is weaker, a certificate is not verified, a host is
// visible, a filter is missing, or Envoy refuses the resource.
//
// The worlds are those of testdata/open, testdata/closed and testdata/good, and random ones: Generator.World takes a
// world of testdata/good and makes one to three fields of it odd, by the schemas of the custom resources. Differences
// that are meant are in the table of accepted.go, each with its reason.
//
// `make compat` runs the search, because it needs the real istiod; the package's other tests need nothing. To repeat a
// run:
//
//	RAPID_SEED=17 OPENNESS_WORLDS=2000 make compat
//
// OPENNESS_ONLY=entry compares only the worlds whose names contain that word, and OPENNESS_DUMP=DIR writes what both
// control planes send for each world into a folder.
//
// # Guarantees
//
//   - In worlds of random odd objects nothing is more open than with the real istiod, except for the list in
//     accepted.go: make compat. Each kind of openness is found: [TestCompare]. Whatever is more closed here stays so:
//     [TestClosedAsIstiod].
package openness
