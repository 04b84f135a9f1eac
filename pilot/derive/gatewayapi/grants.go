package gatewayapi

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// grants is the ReferenceGrants of one namespace.
type grants struct{ list []*kinds.Object }

// sortGrants returns the ReferenceGrants by namespace. Those of a namespace in which none changed keep their pointer.
func (s *stage) sortGrants(all []*kinds.Object) map[string]*grants {
	out := map[string]*grants{}
	for _, o := range all {
		if out[o.Namespace] == nil {
			out[o.Namespace] = &grants{}
		}
		g := out[o.Namespace]
		g.list = append(g.list, o)
	}
	for ns, g := range out {
		if old := s.grants[ns]; old != nil && slices.Equal(old.list, g.list) {
			out[ns] = old
		}
	}
	return out
}

// reference is one from an object to another, by the kinds' groups and names.
type reference struct {
	fromGroup, fromKind, fromNamespace string
	toGroup, toKind, toNamespace, name string
}

// granted reports whether a reference is allowed: within a namespace each is.
func (l *lookups) granted(x reference) bool {
	if x.fromNamespace == x.toNamespace {
		return true
	}
	g := l.grantsOf(x.toNamespace)
	return g != nil && slices.ContainsFunc(g.list, func(o *kinds.Object) bool {
		spec := o.Spec.(*gatewayv1.ReferenceGrant).Spec
		return slices.ContainsFunc(spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
			return string(f.Group) == x.fromGroup && string(f.Kind) == x.fromKind && string(f.Namespace) == x.fromNamespace
		}) && slices.ContainsFunc(spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
			return string(t.Group) == x.toGroup && string(t.Kind) == x.toKind && (t.Name == nil || *t.Name == "" || string(*t.Name) == x.name)
		})
	})
}
