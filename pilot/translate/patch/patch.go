package patch

import (
	"cmp"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Patcher patches Sets. Safe for concurrent use.
type Patcher struct {
	feature *feature.Feature // feature with the hook Patches, or nil
	cache   *engine.Cache
	found   func(diag.Diagnostic) // may be nil

	resources *envoy.MemoTable[resourceKey]
	routes    *envoy.MemoTable[routeKey]
}

// New returns a Patcher for the feature with patches, if there is one, with its resources in a memo and its Sets in a
// cache. found is optional. It is called for each patch that is left out of a resource.
func New(m *envoy.Memo, features []*feature.Feature, c *engine.Cache, found func(diag.Diagnostic)) *Patcher {
	p := &Patcher{cache: c, found: found}
	for _, f := range features {
		if f.Patches != nil {
			p.feature = f
		}
	}
	p.resources = envoy.NewMemoTable(m, p.build)
	p.routes = envoy.NewMemoTable(m, buildRoute)
	return p
}

// resourceKey is the whole input of a patched resource.
type resourceKey struct {
	resource  *envoy.Resource // resource as features have made it; nil if a patch adds it
	typ       string          // URL of its type
	route     string          // route configuration of a virtual host
	direction feature.Direction
	patches   frozen.List[feature.Patch] // patches that may apply, in order
}

// Union returns the patched form of a Union that a cohort is sent. list is the list of names for which the Union was
// made, or nil.
func (p *Patcher) Union(v *view.View, c cohort.Key, typeURL string, list *envoy.Names, u envoy.Union) envoy.Union {
	if c.Patches.None() || p.feature == nil {
		return u
	}
	patches := c.Patches.Value()
	t := target{Patcher: p, view: v, cohort: c, selection: patches.Selections.Of(p.feature), PatchTarget: feature.PatchTarget{Type: typeURL}}
	if t.Direction = feature.Outbound; patches.Router {
		t.Direction = feature.Gateway
	}
	k := engine.Key{Type: typeURL, Patches: c.Patches.Weak()}
	switch typeURL {
	case envoy.ClusterType, envoy.ListenerType:
		if k.Client = c.Client.Weak(); typeURL == envoy.ListenerType {
			k.Listeners = c.Listeners.Weak()
		}
		u.Shared = t.set(k, u.Shared)
		if !c.Inbound.None() {
			t.Direction = feature.Inbound
			own := engine.Key{Type: typeURL, Patches: k.Patches, Inbound: c.Inbound.Weak()}
			u.Own = t.set(own, u.Own)
		}
	case envoy.RouteType:
		k.Client, t.list = c.Client.Weak(), list
		u.Shared = t.set(k, u.Shared)
	case envoy.ExtensionType:
		k.Listeners, t.list = c.Listeners.Weak(), list
		u.Shared = t.set(k, u.Shared)
	}
	return u
}

// target is the resources of one type and direction of a cohort.
type target struct {
	*Patcher
	view      *view.View
	cohort    cohort.Key
	list      *envoy.Names // the names of the resources; nil if all are wanted
	selection feature.Selection
	feature.PatchTarget
	of func() func(feature.PatchTarget) []feature.Patch // returns a function that finds the patches of these resources
}

// prepared returns the target with its patches looked up.
func (t target) prepared() target {
	selection, of := t.selection, t.PatchTarget
	t.of = sync.OnceValue(func() func(feature.PatchTarget) []feature.Patch { return t.feature.Patches.Of(selection, of) })
	return t
}

// set returns a Set with its resources changed and others added.
func (t target) set(k engine.Key, base *envoy.Set) *envoy.Set {
	return engine.Derive(t.cache, k, t.view.Revision, t.list, base, t.prepared()).Set
}

// Change returns a resource as it is patched.
func (t target) Change(r *envoy.Resource) *envoy.Resource {
	switch t.Type {
	case envoy.RouteType:
		return t.routeConfiguration(r)
	case envoy.VirtualHostType:
		return t.virtualHost(r)
	}
	return t.resource(r)
}

// Added returns the resources that patches add. A resource that cannot be made is Removed.
func (t target) Added() []*envoy.Resource {
	var list []*envoy.Resource
	for _, patch := range t.feature.Patches.Added(t.selection, t.PatchTarget) {
		if r := t.resources.Get(t.key(nil, patch)); t.list == nil || t.list.Has(r.Name) {
			list = append(list, r)
		}
	}
	return list
}

// HasContent reports whether the resources are virtual hosts.
func (t target) HasContent() bool { return t.Type == envoy.VirtualHostType }

// key returns the key of a resource of the target with the patches that may apply to it. r is nil if they add it.
func (t target) key(r *envoy.Resource, patches ...feature.Patch) resourceKey {
	k := resourceKey{resource: r, typ: t.Type, direction: t.Direction, patches: frozen.ListOf(patches...)}
	if t.Type == envoy.VirtualHostType {
		k.route = t.Name
	}
	return k
}

// resource returns the patched form of a resource: the same resource if no patch applies.
func (t target) resource(r *envoy.Resource) *envoy.Resource {
	t.Name = r.Name
	return t.patched(r)
}

// patched returns the patched form of a resource of the target.
func (t target) patched(r *envoy.Resource) *envoy.Resource {
	patches := t.of()(t.PatchTarget)
	if len(patches) == 0 {
		return r
	}
	if made := t.resources.Get(t.key(r, patches...)); !made.Same() {
		return made
	}
	return r
}

// message returns an empty message of a type.
func message(typeURL string) proto.Message {
	switch typeURL {
	case envoy.ClusterType:
		return &clusterv3.Cluster{}
	case envoy.ListenerType:
		return &listenerv3.Listener{}
	case envoy.RouteType:
		return &routev3.RouteConfiguration{}
	case envoy.VirtualHostType:
		return &routev3.VirtualHost{}
	}
	return &corev3.TypedExtensionConfig{}
}

// build makes a patched resource with notes. If no patch applies it returns one that is Same.
func (p *Patcher) build(k resourceKey) *envoy.Resource {
	name := ""
	if k.resource != nil {
		name = k.resource.Name
	}
	patches := slices.Collect(k.patches.All)
	made := envoy.SameResource(name)
	var notes []feature.PatchNote
	var unread error
	err := safe.Do("patch "+name, func() {
		var m, was proto.Message
		if k.resource != nil {
			was = message(k.typ)
			if unread = proto.Unmarshal(k.resource.Value(), was); unread != nil {
				return
			}
			m = was
		}
		m, notes = p.feature.Patches.Apply(patches, feature.PatchTarget{Type: k.typ, Direction: k.direction, Name: name}, m)
		switch {
		case len(notes) == 0:
		case m == nil:
			made = envoy.RemovedResource(name, noted(notes))
		case was != nil && proto.Equal(was, m):
			made = k.resource.With(noted(notes))
		default:
			made = encode(k, m)
			made.Notes = noted(notes)
		}
	})
	if err = cmp.Or(err, unread); err != nil {
		notes = nil
		for _, patch := range patches {
			notes = append(notes, feature.PatchNote{Patch: patch, Resource: name, Reason: err.Error()})
		}
		if made = envoy.RemovedResource(name, noted(notes)); k.resource != nil { // a resource that exists stays
			made = k.resource.With(noted(notes))
		}
	}
	if p.found != nil && len(notes) > 0 {
		for _, d := range p.feature.Patches.Findings(nil, notes) {
			p.found(d)
		}
	}
	return made
}

// noted converts notes to the form in a resource.
func noted(notes []feature.PatchNote) []envoy.Note {
	var list []envoy.Note
	for _, n := range notes {
		list = append(list, envoy.Note{Object: n.Object, Index: n.Index, Reason: n.Reason})
	}
	return list
}

// encode makes a resource from a message.
func encode(k resourceKey, m proto.Message) *envoy.Resource {
	switch m := m.(type) {
	case *routev3.VirtualHost:
		return envoy.NewHost(k.route, m)
	case *routev3.RouteConfiguration:
		r := envoy.NewResource(m.Name, m)
		if k.resource.Divided {
			r.SetDivided()
		}
		return r
	}
	return envoy.NewResource(m.(interface{ GetName() string }).GetName(), m)
}
