// Package manifest injects proxies into files of objects: into Pods, and into the templates of what makes Pods, also
// within Lists. Documents without one stay as they are, byte for byte. The package is pure and has no state.
package manifest
