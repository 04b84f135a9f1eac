package snapshot

import (
	"maps"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// SharedSecrets are the secrets that proxies of other namespaces may be sent. They are replaced as a whole, never
// changed: comparable by pointer. A nil one is empty.
type SharedSecrets struct{ all map[kinds.SharedSecret]bool }

// ShareSecrets returns the SharedSecrets of a list.
func ShareSecrets(list ...kinds.SharedSecret) *SharedSecrets {
	if len(list) == 0 {
		return nil
	}
	s := &SharedSecrets{make(map[kinds.SharedSecret]bool, len(list))}
	for _, x := range list {
		s.all[x] = true
	}
	return s
}

// With reports whether proxies of a namespace may be sent the resource of SDS with that name.
func (s *SharedSecrets) With(namespace, resource string) bool {
	return s != nil && (s.all[kinds.SharedSecret{Namespace: namespace, Resource: resource}] || s.all[kinds.SharedSecret{Resource: resource}])
}

// SetShared replaces the secrets that proxies of other namespaces may be sent.
func (b *Builder) SetShared(list []kinds.SharedSecret) {
	next := ShareSecrets(list...)
	if (next == nil) == (b.shared == nil) && (next == nil || maps.Equal(next.all, b.shared.all)) {
		return
	}
	b.shared = next
	b.markFull("global", "secrets that other namespaces may have")
}
