package gatewayapi

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// unit is something that is made of one object, which has its key, and of cells.
type unit struct {
	key   kinds.Key
	reads []cell
}

// cell is something that units are made of beside their own object. Where it changes its readers are made again.
type cell struct {
	what cellKind
	key  kinds.Key
}

type cellKind uint8

const (
	theObject     cellKind = iota // of the key
	theExistence                  // whether there is a Gateway of the key, of whichever controller
	theGateway                    // whether the Gateway of the key is this controller's, and has ListenerSets
	theListeners                  // those of the Gateway or the ListenerSet of the key; of a Gateway also the former
	theHostname                   // which listener of a Gateway has a hostname on a port
	theParent                     // the Gateway that the ListenerSet of the key names
	theController                 // of the GatewayClass of the key
	theGrants                     // the ReferenceGrants of the key's namespace
)

// lookups looks up cells for a unit that is being made.
type lookups struct {
	run   *run
	reads []cell
	seen  map[cell]bool // where there are many
}

// read records that the unit is made of a cell.
func (l *lookups) read(what cellKind, key kinds.Key) {
	const few = 16
	c := cell{what, key}
	switch {
	case l.seen[c], l.seen == nil && slices.Contains(l.reads, c):
		return
	case l.seen != nil:
		l.seen[c] = true
	case len(l.reads) == few:
		l.seen = map[cell]bool{c: true}
		for _, x := range l.reads {
			l.seen[x] = true
		}
	}
	l.reads = append(l.reads, c)
}

// object returns the object of a key, or nil.
func (l *lookups) object(key kinds.Key) *kinds.Object {
	l.read(theObject, key)
	if of, is := l.run.objects[key.Kind]; is {
		return of[key]
	}
	o, known := l.run.looked[key]
	if !known {
		o = l.run.in.Get(key)
		l.run.looked[key] = o
	}
	return o
}

// exists reports whether there is a Gateway of a key, of whichever controller.
func (l *lookups) exists(key kinds.Key) bool {
	l.read(theExistence, key)
	return l.run.objects[kinds.KubeGateway][key] != nil
}

// listeners returns the Gateway of a key and those of its listeners that are of an owner; nil if the Gateway is not
// this controller's.
func (l *lookups) listeners(key, owner kinds.Key) (*gateway, []*listener) {
	l.read(theListeners, owner)
	if owner != key {
		l.read(theGateway, key)
	}
	g := l.run.gateways[key]
	if g == nil {
		return nil, nil
	}
	return g, g.of[owner]
}

// http returns the listener of HTTP of a Gateway that has a hostname on a port, or nil. Without ListenerSets whoever
// asks was made of all listeners of the Gateway.
func (l *lookups) http(g *gateway, at hostnamePort) *listener {
	if len(g.sets) > 0 {
		l.read(theHostname, at.key(g.object.Key))
	}
	return g.http[at]
}

// parent returns the Gateway that the ListenerSet of a key names. It reports false where there is no such set.
func (l *lookups) parent(key kinds.Key) (kinds.Key, bool) {
	l.read(theParent, key)
	if o := l.run.objects[kinds.ListenerSet][key]; o != nil {
		return parentOf(o)
	}
	return kinds.Key{}, false
}

// controller returns the controller of the GatewayClass of a name, or nothing if there is none.
func (l *lookups) controller(class string) string {
	l.read(theController, kinds.Key{Kind: kinds.GatewayClass, Name: class})
	return l.run.classes[class]
}

// grants returns the ReferenceGrants of a namespace.
func (l *lookups) grants(namespace string) map[kinds.Key]*kinds.Object {
	l.read(theGrants, kinds.Key{Kind: kinds.ReferenceGrant, Namespace: namespace})
	return l.run.grants[namespace]
}

// changed has the readers of a cell made again.
func (r *run) changed(c cell) {
	for u := range r.readers[c] {
		r.due(u.key, true)
	}
}

// read records what a unit was made of. Without lookups there is no such unit any more.
func (r *run) read(key kinds.Key, l *lookups) {
	u := r.units[key]
	if l == nil {
		if u == nil {
			return
		}
		l = &lookups{}
		delete(r.units, key)
	} else if u == nil {
		u = &unit{key: key}
		r.units[key] = u
	}
	for _, c := range l.reads {
		lists.PutIn(r.readers, c, u, struct{}{})
	}
	for _, c := range u.reads {
		if l.seen[c] || l.seen == nil && slices.Contains(l.reads, c) {
			continue
		}
		if delete(r.readers[c], u); len(r.readers[c]) == 0 {
			r.idle = append(r.idle, c)
		}
	}
	u.reads = slices.Clone(l.reads)
}

// forget drops what nothing is made of any more.
func (r *run) forget() {
	for _, c := range r.idle {
		of, is := r.readers[c]
		if !is || len(of) > 0 {
			continue
		}
		delete(r.readers, c)
		if _, looked := r.looked[c.key]; looked && c.what == theObject {
			delete(r.looked, c.key)
			r.out.Unwatched = append(r.out.Unwatched, c.key)
		}
	}
}
