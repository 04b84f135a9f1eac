package translate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Limits for Sources, because a route configuration has thousands of virtual hosts.
const (
	maxSources       = 16
	maxSourceObjects = 256
)

// Sources returns the keys of the objects that a resource is made from, at most 16: objects that change others first,
// then policies and routes, and services last. A resource that the memo has dropped has none.
//
// A builder reads only its key in the memo, so the objects in the key explain the resource.
func (t *Translator) Sources(r *envoy.Resource) []kinds.Key {
	w := newOriginWalk(func(r *envoy.Resource) (parts, bool) {
		k := t.memo.KeyOf(r)
		if k == nil {
			return parts{}, false
		}
		return partsOf(k), true
	})
	w.resource(r)
	list := w.objects()
	slices.SortFunc(list, func(a, b kinds.Key) int {
		return cmp.Or(cmp.Compare(sourceRank(a.Kind), sourceRank(b.Kind)), strings.Compare(a.Kind.Name, b.Kind.Name),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), maxSources)]
}

// sourceRank orders kinds by how likely their objects are the cause if a proxy rejects a resource.
func sourceRank(k *kinds.Kind) int {
	switch k {
	case kinds.EnvoyFilter:
		return 0
	case kinds.WasmPlugin, kinds.TrafficExtension:
		return 1
	case kinds.ServiceEntry:
		return 3
	case kinds.Service:
		return 4
	}
	return 2
}

// originWalk collects the objects that resources are made from. It visits each resource once.
type originWalk struct {
	parts func(*envoy.Resource) (parts, bool) // returns false for a resource that the memo does not have
	keys  map[kinds.Key]struct{}
	seen  map[*envoy.Resource]struct{}
}

func newOriginWalk(of func(*envoy.Resource) (parts, bool)) *originWalk {
	return &originWalk{of, map[kinds.Key]struct{}{}, map[*envoy.Resource]struct{}{}}
}

// objects returns the collected keys, in no order.
func (w *originWalk) objects() []kinds.Key { return slices.Collect(maps.Keys(w.keys)) }

func (w *originWalk) set(s *envoy.Set) {
	for r := range s.All {
		if len(w.keys) > maxSourceObjects || len(w.seen) > maxSourceObjects {
			return
		}
		w.resource(r)
	}
}

func (w *originWalk) resource(r *envoy.Resource) {
	if _, ok := w.seen[r]; ok || r == nil {
		return
	}
	w.seen[r] = struct{}{}
	for _, n := range r.Notes {
		w.keys[n.Object.Key] = struct{}{}
	}
	p, ok := w.parts(r)
	if !ok {
		w.resource(r.Header)
		w.set(r.Hosts)
		return
	}
	for _, k := range p.objects {
		w.keys[k] = struct{}{}
	}
	for _, r := range p.resources {
		w.resource(r)
	}
	for _, s := range p.sets {
		w.set(s)
	}
}

// parts are the parts of a resource's key that lead to objects.
type parts struct {
	objects   []kinds.Key
	resources []*envoy.Resource
	sets      []*envoy.Set
}

// partsOf returns the parts of a key of a MemoTable.
func partsOf(key any) parts {
	var p parts
	p.add(reflect.ValueOf(key))
	return p
}

func (p *parts) service(s *registry.Service) {
	k := kinds.Key{Kind: kinds.Service, Namespace: s.Namespace, Name: s.Object}
	if s.Provider == registry.External {
		k.Kind = kinds.ServiceEntry
	}
	p.objects = append(p.objects, k)
}

// add adds the objects and resources in a part of a key. It follows pointers and list cells that can contain objects,
// and skips others such as the mesh configuration.
func (p *parts) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		switch v.Type() {
		case reflect.TypeFor[*kinds.Object]():
			p.objects = append(p.objects, (*kinds.Object)(v.UnsafePointer()).Key)
		case reflect.TypeFor[*registry.Service]():
			p.service((*registry.Service)(v.UnsafePointer()))
		case reflect.TypeFor[*envoy.Resource]():
			p.resources = append(p.resources, (*envoy.Resource)(v.UnsafePointer()))
		case reflect.TypeFor[*envoy.Set]():
			p.sets = append(p.sets, (*envoy.Set)(v.UnsafePointer()))
		default:
			if strings.HasPrefix(v.Type().Elem().Name(), "cell[") { // cell of a frozen.List
				p.add(v.Elem())
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			p.add(v.Field(i))
		}
	case reflect.Interface:
		if !v.IsNil() {
			p.add(v.Elem())
		}
	}
}
