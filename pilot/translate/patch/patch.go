package patch

import (
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
	feature *feature.Feature // the one with patches, or nil
	cache   *engine.Cache
	found   func(diag.Diagnostic) // may be nil

	resources *envoy.MemoTable[resourceKey]
	routes    *envoy.MemoTable[routeKey]
}

// New returns a Patcher with the patches of one of some features, its resources in a memo and its Sets in a cache.
// found is called for each patch of a resource that is left out; nil: nobody wants to know.
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

// resourceKey is all that a patched resource depends on.
type resourceKey struct {
	resource  *envoy.Resource // as features have made it; nil of one that a patch adds
	typ       string          // its URL
	route     string          // the route configuration of a virtual host
	direction feature.Direction
	patches   frozen.List[feature.Patch] // those that may apply, in order
}

// Union returns what a cohort is sent of a type in the place of a Union. list is the list of names that it was made
// for, or nil.
func (p *Patcher) Union(v *view.View, c cohort.Key, typeURL string, list *envoy.Names, u envoy.Union) envoy.Union {
	if c.Patches.None() || p.feature == nil {
		return u
	}
	patches := c.Patches.Value()
	t := target{p, v, c, patches.Selections.Of(p.feature), feature.PatchTarget{Type: typeURL}}
	if t.Direction = feature.Outbound; patches.Router {
		t.Direction = feature.Gateway
	}
	k := engine.Key{Type: typeURL, Patches: c.Patches.Weak()}
	switch typeURL {
	case envoy.ClusterType, envoy.ListenerType:
		if k.Scope = c.Scope.Weak(); typeURL == envoy.ListenerType {
			k.Listeners = c.Listeners.Weak()
		}
		u.Shared = t.set(k, nil, u.Shared, t.resource)
		if !c.Inbound.None() {
			t.Direction = feature.Inbound
			k.Scope, k.Listeners, k.Inbound = engine.Key{}.Scope, engine.Key{}.Listeners, c.Inbound.Weak()
			u.Own = t.set(k, nil, u.Own, t.resource)
		}
	case envoy.RouteType:
		k.Scope = c.Scope.Weak()
		u.Shared = t.set(k, list, u.Shared, t.routeConfiguration)
	case envoy.ExtensionType:
		u.Shared = t.set(k, list, u.Shared, t.resource)
	}
	return u
}

// target is the resources of one type and direction of a cohort.
type target struct {
	*Patcher
	view      *view.View
	cohort    cohort.Key
	selection feature.Selection
	feature.PatchTarget
}

// set returns a Set with its resources changed and others added.
func (t target) set(k engine.Key, list *envoy.Names, base *envoy.Set, change func(*envoy.Resource) *envoy.Resource) *envoy.Set {
	d := engine.Derivation{Change: change}
	for _, r := range t.added() {
		if list == nil || list.Has(r.Name) {
			d.Added = append(d.Added, r)
		}
	}
	return engine.Derive(t.cache, k, t.view.Revision, list, base, d).Set
}

// added returns the resources that patches add. A patch whose resource cannot be made adds none.
func (t target) added() []*envoy.Resource {
	var list []*envoy.Resource
	for _, patch := range t.feature.Patches.Added(t.selection, t.PatchTarget) {
		k := resourceKey{typ: t.Type, direction: t.Direction, patches: frozen.ListOf(patch)}
		if t.Type == envoy.VirtualHostType {
			k.route = t.Name
		}
		if r := t.resources.Get(k); !r.Removed() {
			list = append(list, r)
		}
	}
	return list
}

// resource returns a resource as it is patched: the same, if no patch applies, and nil where it is removed.
func (t target) resource(r *envoy.Resource) *envoy.Resource {
	t.Name = r.Name
	return t.patched(r)
}

// patched returns the resource of the target as it is patched.
func (t target) patched(r *envoy.Resource) *envoy.Resource {
	patches := t.feature.Patches.Of(t.selection, t.PatchTarget)
	if len(patches) == 0 {
		return r
	}
	k := resourceKey{resource: r, typ: t.Type, direction: t.Direction, patches: frozen.ListOf(patches...)}
	if t.Type == envoy.VirtualHostType {
		k.route = t.Name
	}
	if r = t.resources.Get(k); r.Removed() {
		return nil
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

// build makes a resource as it is patched: the same, if the patches change nothing or fail.
func (p *Patcher) build(k resourceKey) *envoy.Resource {
	made := k.resource
	if made == nil {
		made = envoy.RemovedResource("")
	}
	var patches []feature.Patch
	for patch := range k.patches.All {
		patches = append(patches, patch)
	}
	var found []diag.Diagnostic
	err := safe.Do("patch "+made.Name, func() {
		var m, was proto.Message
		target := feature.PatchTarget{Type: k.typ, Direction: k.direction, Name: made.Name}
		if k.resource != nil {
			was = message(k.typ)
			if err := proto.Unmarshal(k.resource.Value(), was); err != nil {
				return
			}
			m = proto.Clone(was)
		}
		m, found = p.feature.Patches.Apply(patches, target, m)
		switch {
		case m == nil:
			made = envoy.RemovedResource(made.Name)
		case was != nil && proto.Equal(was, m):
		default:
			made = encode(k, m)
		}
	})
	if err != nil { // the resource stays as it is
		for _, patch := range patches {
			found = append(found, diag.Diagnostic{Severity: diag.Error, Code: "PatchFailed", Object: patch.Object.String(), Message: err.Error()}.At(patch.Object.Position))
		}
	}
	if p.found != nil {
		for _, d := range found {
			p.found(d)
		}
	}
	return made
}

// encode makes a resource of a message.
func encode(k resourceKey, m proto.Message) *envoy.Resource {
	switch m := m.(type) {
	case *routev3.VirtualHost:
		return envoy.NewHost(k.route, m)
	case *routev3.RouteConfiguration:
		r := envoy.NewResource(m.Name, m)
		r.Divided = k.resource.Divided
		return r
	case interface {
		proto.Message
		GetName() string
	}:
		return envoy.NewResource(m.GetName(), m)
	}
	return k.resource
}
