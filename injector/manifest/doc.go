// Package manifest injects proxies into files of objects: into Pods, and into the Pod templates of other objects, also
// within Lists. Documents without a Pod stay unchanged byte for byte. The package is pure and has no state.
package manifest
