package gatewayapi

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// takeGrant handles a change of a ReferenceGrant.
func (r *run) takeGrant(c kinds.Change) {
	of := r.grants[c.Namespace]
	if of == nil {
		of = map[kinds.Key]*kinds.Object{}
		r.grants[c.Namespace] = of
	}
	if of[c.Key] = c.Object; c.Object == nil {
		delete(of, c.Key)
	}
	if len(of) == 0 {
		delete(r.grants, c.Namespace)
	}
	r.changed(cell{cellGrants, kinds.Key{Kind: kinds.ReferenceGrant, Namespace: c.Namespace}})
}

// reference is a reference from an object to another, by the groups and names of their kinds.
type reference struct {
	fromGroup, fromKind, fromNamespace string
	toGroup, toKind, toNamespace, name string
}

// granted reports whether a reference is allowed. A reference within a namespace always is.
func (l *lookups) granted(x reference) bool {
	if x.fromNamespace == x.toNamespace {
		return true
	}
	for _, o := range l.grants(x.toNamespace) {
		spec := o.Spec.(*gatewayv1.ReferenceGrant).Spec
		from := slices.ContainsFunc(spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
			return string(f.Group) == x.fromGroup && string(f.Kind) == x.fromKind && string(f.Namespace) == x.fromNamespace
		})
		if from && slices.ContainsFunc(spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
			return string(t.Group) == x.toGroup && string(t.Kind) == x.toKind && (t.Name == nil || *t.Name == "" || string(*t.Name) == x.name)
		}) {
			return true
		}
	}
	return false
}
