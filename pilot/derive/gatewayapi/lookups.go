package gatewayapi

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// unit is an object that the stage derives from, with the cells that its result depends on. Its key is the object's.
type unit struct {
	key   kinds.Key
	reads []cell
}

// cell is a piece of state that units depend on beside their own object. A change of it makes its readers again.
type cell struct {
	what cellKind
	key  kinds.Key
}

type cellKind uint8

const (
	cellObject     cellKind = iota // the object of the key
	cellExistence                  // whether there is a Gateway of the key, of any controller
	cellGateway                    // whether the Gateway of the key is this controller's, and has ListenerSets
	cellListeners                  // the listeners of the Gateway or the ListenerSet of the key; for a Gateway also the former ones
	cellHostname                   // which listener of a Gateway has a hostname on a port
	cellParent                     // the Gateway that the ListenerSet of the key names
	cellController                 // the controller of the GatewayClass of the key
	cellGrants                     // the ReferenceGrants of the key's namespace
)

// lookups records the cells that a unit reads while it is being made.
type lookups struct {
	run   *run
	reads []cell
	seen  map[cell]bool // set if there are many cells
}

// read records that the unit depends on a cell.
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
	l.read(cellObject, key)
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

// exists reports whether there is a Gateway of a key, of any controller.
func (l *lookups) exists(key kinds.Key) bool {
	l.read(cellExistence, key)
	return l.run.objects[kinds.KubeGateway][key] != nil
}

// listeners returns the Gateway of a key and its listeners of an owner. It returns nil if the Gateway belongs to
// another controller.
func (l *lookups) listeners(key, owner kinds.Key) (*gateway, []*listener) {
	l.read(cellListeners, owner)
	if owner != key {
		l.read(cellGateway, key)
	}
	g := l.run.gateways[key]
	if g == nil {
		return nil, nil
	}
	return g, g.of[owner]
}

// http returns the HTTP listener of a Gateway that has a hostname on a port, or nil. It reads a cell only for a Gateway
// with ListenerSets: otherwise the calling unit depends on all listeners of the Gateway already.
func (l *lookups) http(g *gateway, at hostnamePort) *listener {
	if len(g.sets) > 0 {
		l.read(cellHostname, at.key(g.object.Key))
	}
	return g.http[at]
}

// parent returns the Gateway that the ListenerSet of a key names. It returns false if there is no such set.
func (l *lookups) parent(key kinds.Key) (kinds.Key, bool) {
	l.read(cellParent, key)
	if o := l.run.objects[kinds.ListenerSet][key]; o != nil {
		return parentOf(o)
	}
	return kinds.Key{}, false
}

// controller returns the controller of the GatewayClass of a name, or "" if there is none.
func (l *lookups) controller(class string) string {
	l.read(cellController, kinds.Key{Kind: kinds.GatewayClass, Name: class})
	return l.run.classes[class]
}

// grants returns the ReferenceGrants of a namespace.
func (l *lookups) grants(namespace string) map[kinds.Key]*kinds.Object {
	l.read(cellGrants, kinds.Key{Kind: kinds.ReferenceGrant, Namespace: namespace})
	return l.run.grants[namespace]
}

// changed makes the readers of a cell due.
func (r *run) changed(c cell) {
	for u := range r.readers[c] {
		r.due(u.key, true)
	}
}

// read stores the cells that a unit depends on. A nil l removes the unit.
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

// forget drops objects and cells on which no unit depends.
func (r *run) forget() {
	for _, c := range r.idle {
		of, is := r.readers[c]
		if !is || len(of) > 0 {
			continue
		}
		delete(r.readers, c)
		if _, looked := r.looked[c.key]; looked && c.what == cellObject {
			delete(r.looked, c.key)
			r.out.Unwatched = append(r.out.Unwatched, c.key)
		}
	}
}
