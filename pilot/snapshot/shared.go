package snapshot

import (
	"maps"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// SharedSecrets are the secrets that proxies may be sent because an object names them for those proxies. It is
// immutable, so that pointers can be compared. Nil is empty.
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

// With reports whether proxies of an identity may be sent the SDS resource with that name. If only their namespace is
// named, direct is false: the identity must also be allowed to list Secrets there.
func (s *SharedSecrets) With(id identity.ID, resource string) (shared, direct bool) {
	if s == nil {
		return false, false
	}
	direct = s.all[kinds.SharedSecret{Resource: resource}] ||
		id.ServiceAccount != "" && s.all[kinds.SharedSecret{Namespace: id.Namespace, Account: id.ServiceAccount, Resource: resource}]
	return direct || s.all[kinds.SharedSecret{Namespace: id.Namespace, Resource: resource}], direct
}

// SetShared replaces the secrets that proxies may be sent because an object names them.
func (b *Builder) SetShared(list []kinds.SharedSecret) {
	next := ShareSecrets(list...)
	if (next == nil) == (b.shared == nil) && (next == nil || maps.Equal(next.all, b.shared.all)) {
		return
	}
	b.shared = next
	b.markFull("global", "secrets that objects share")
}
