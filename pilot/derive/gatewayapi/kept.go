package gatewayapi

import (
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// keep copies the listeners of an unchanged owner, with their attached routes, from the previous version of a Gateway.
// It reports whether the owner is unchanged.
func (g *gateway) keep(was *gateway, owner kinds.Key) bool {
	before, now := was.of[owner], g.of[owner]
	if len(before) == 0 || !slices.EqualFunc(before, now, (*listener).routesAlike) {
		return false
	}
	if attached, judged := was.judged[owner]; judged && was.judgesAlike(g, owner) {
		g.judged[owner] = attached
	}
	for i, l := range now {
		kept := before[i]
		derived := kept.derived // an equal object, so that its pointer stays
		attached := kept.attached
		*kept = *l
		kept.derived, kept.attached = derived, attached
		now[i] = kept
		if at := (hostnamePort{l.hostname, l.Port}); g.http[at] == l {
			g.http[at] = kept
		}
	}
	return true
}

// list lists the listeners of all owners.
func (g *gateway) list() {
	if g.object == nil {
		return
	}
	g.listeners = slices.Clone(g.of[g.object.Key])
	for _, s := range g.sets {
		g.listeners = append(g.listeners, g.of[s.object.Key]...)
	}
}

// routesAlike reports whether a route that attaches to a listener, and the objects derived from it, are the same for
// another version of the listener.
func (l *listener) routesAlike(o *listener) bool {
	return l.ownerName == o.ownerName && l.hostname == o.hostname && l.bound == o.bound && l.routed == o.routed && l.name == o.name &&
		l.owner.UID == o.owner.UID && l.owner.Created.Equal(o.owner.Created) && l.gateway.object.Created.Equal(o.gateway.object.Created) &&
		slices.Equal(l.kinds, o.kinds) && proto.Equal(l.server, o.server) && proto.Equal(l.tls, o.tls) &&
		reflect.DeepEqual(l.Listener, o.Listener) && reflect.DeepEqual(l.gateway.workloads, o.gateway.workloads)
}

// judgesAlike reports whether the status of an owner of listeners is the same for another version of the Gateway, apart
// from the numbers of attached routes.
func (g *gateway) judgesAlike(o *gateway, owner kinds.Key) bool {
	alike := func(a, b *listener) bool {
		same := func(a, b *condition) bool { return a == b || a != nil && b != nil && *a == *b }
		return a.owner == b.owner && a.conflict == b.conflict && a.overlaps == b.overlaps && same(a.refused, b.refused) &&
			same(a.resolved, b.resolved)
	}
	if owner == g.object.Key { // the Gateway's own status depends on all of them
		return false
	}
	set := func(g *gateway) int {
		return slices.IndexFunc(g.sets, func(s *listenerSet) bool { return s.object.Key == owner })
	}
	i, j := set(g), set(o)
	return i >= 0 && j >= 0 && *g.sets[i] == *o.sets[j] && slices.EqualFunc(g.of[owner], o.of[owner], alike) &&
		slices.Equal(g.services, o.services) && g.unnamed == o.unnamed
}

// changedHostnames marks the hostnames of a Gateway as changed whose listener on a port is a different one.
func (r *run) changedHostnames(key kinds.Key, was, now map[hostnamePort]*listener) {
	both := maps.Clone(was)
	if both == nil {
		both = map[hostnamePort]*listener{}
	}
	maps.Copy(both, now)
	for at := range both {
		if a, b := was[at], now[at]; a == nil || b == nil || a.id() != b.id() {
			r.changed(cell{cellHostname, at.key(key)})
		}
	}
}
