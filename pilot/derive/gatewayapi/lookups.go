package gatewayapi

import "github.com/istiod-lite/istiod-lite/api/kinds"

// lookups is what something was made of beside its own object. It looks up, and remembers the answers.
type lookups struct {
	run      *run // while it is being made
	objects  []lookedUp
	grants   []lookedUpGrants
	gateways []lookedUpGateway
}

type lookedUp struct {
	key    kinds.Key
	object *kinds.Object // nil: there is none
}

type lookedUpGrants struct {
	namespace string
	grants    *grants
}

type lookedUpGateway struct {
	key     kinds.Key
	gateway *gateway
}

// object returns the object of a key, or nil.
func (l *lookups) object(key kinds.Key) *kinds.Object {
	for _, x := range l.objects {
		if x.key == key {
			return x.object
		}
	}
	o := l.run.in.Get(key)
	l.objects = append(l.objects, lookedUp{key, o})
	return o
}

// gateway returns the Gateway of a key if it is this controller's, or nil.
func (l *lookups) gateway(key kinds.Key) *gateway {
	g := l.run.gateways[key]
	l.gateways = append(l.gateways, lookedUpGateway{key, g})
	return g
}

// grantsOf returns the ReferenceGrants of a namespace.
func (l *lookups) grantsOf(namespace string) *grants {
	g := l.run.grants[namespace]
	l.grants = append(l.grants, lookedUpGrants{namespace, g})
	return g
}

// same reports whether every answer is what it was. Each object is looked up, so that a change of it makes another run.
func (l *lookups) same(r *run) bool {
	same := true
	for _, x := range l.objects {
		same = r.in.Get(x.key) == x.object && same
	}
	for _, x := range l.grants {
		same = same && r.grants[x.namespace] == x.grants
	}
	for _, x := range l.gateways {
		same = same && r.gateways[x.key] == x.gateway
	}
	return same
}
