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
	answer *answer
	object *kinds.Object // nil: there was none
}

// answer is the object of a key. A run looks it up once, however many ask for it.
type answer struct {
	key    kinds.Key
	object *kinds.Object // nil: there is none
	run    uint64        // that looked it up last
}

// ask returns the answer of this run.
func (r *run) ask(key kinds.Key) *answer {
	a := r.answers[key]
	if a == nil {
		a = &answer{key: key}
		r.answers[key] = a
	}
	r.refresh(a)
	return a
}

func (r *run) refresh(a *answer) {
	if a.run != r.number {
		a.object, a.run = r.in.Get(a.key), r.number
		r.asked++
	}
}

type lookedUpGrants struct {
	namespace string
	grants    *grants
}

type lookedUpGateway struct {
	key     kinds.Key
	gateway *gateway // nil: this controller had none
}

// object returns the object of a key, or nil.
func (l *lookups) object(key kinds.Key) *kinds.Object {
	for _, x := range l.objects {
		if x.answer.key == key {
			return x.object
		}
	}
	a := l.run.ask(key)
	l.objects = append(l.objects, lookedUp{a, a.object})
	return a.object
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
		r.refresh(x.answer)
		same = same && x.answer.object == x.object
	}
	for _, x := range l.grants {
		same = same && r.grants[x.namespace] == x.grants
	}
	for _, x := range l.gateways {
		if x.gateway != nil {
			same = same && x.gateway.run == r.number
		} else {
			same = same && r.gateways[x.key] == nil
		}
	}
	return same
}
