package snapshot_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// needs is a Catalog whose objects need facts.
type needs func(*kinds.Object) []facts.Want

func (needs) Kinds() map[*kinds.Kind]snapshot.Reach { return nil }
func (n needs) Wants(o *kinds.Object) []facts.Want  { return n(o) }

// TestFacts: a fact is in the Snapshot from its answer on, for as long as an object needs it. A Diff lists it when it
// comes, changes and goes.
func TestFacts(t *testing.T) {
	textKind := &kinds.Kind{Name: "Text"}
	key := func(name string) kinds.Key { return kinds.Key{Kind: textKind, Name: name} }
	b := snapshot.NewBuilder(snapshot.Options{Mesh: mesh.Default(), Catalog: needs(func(o *kinds.Object) (list []facts.Want) {
		for i, r := range o.Spec.(*securityv1.RequestAuthentication).JwtRules {
			list = append(list, facts.Want{Key: key(r.JwksUri), Field: fmt.Sprintf("spec.jwtRules[%d]", i)})
		}
		return list
	})})
	policy := func(name string, needs ...string) kinds.Change {
		spec := &securityv1.RequestAuthentication{}
		for _, n := range needs {
			spec.JwtRules = append(spec.JwtRules, &securityv1.JWTRule{JwksUri: n})
		}
		k := kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "a", Name: name}
		return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: spec}}
	}
	gone := func(name string) kinds.Change { return kinds.Change{Key: policy(name).Key} }
	answer := func(name, value string) kinds.Change { return facts.Change(textKind, name, &value) }
	for i, step := range []struct {
		objects, answers []kinds.Change
		wanted           []string
		facts            map[string]string // all of them
		diff             []string          // those that changed
	}{
		{objects: []kinds.Change{policy("p", "x", "y")}, wanted: []string{"x", "y"}},
		{
			answers: []kinds.Change{answer("x", "1"), answer("z", "1")}, wanted: []string{"x", "y"}, facts: map[string]string{"x": "1"},
			diff: []string{"x"},
		},
		{answers: []kinds.Change{answer("x", "1")}, wanted: []string{"x", "y"}, facts: map[string]string{"x": "1"}},
		{
			answers: []kinds.Change{answer("x", "2"), answer("y", "1")}, wanted: []string{"x", "y"},
			facts: map[string]string{"x": "2", "y": "1"}, diff: []string{"x", "y"},
		},
		{objects: []kinds.Change{policy("q", "x", "x")}, wanted: []string{"x", "y"}, facts: map[string]string{"x": "2", "y": "1"}},
		{objects: []kinds.Change{policy("p", "y")}, wanted: []string{"x", "y"}, facts: map[string]string{"x": "2", "y": "1"}},
		{objects: []kinds.Change{gone("p"), policy("q", "y")}, wanted: []string{"y"}, facts: map[string]string{"y": "1"}, diff: []string{"x"}},
		{
			answers: []kinds.Change{facts.Change[string](textKind, "y", nil), facts.Change[string](textKind, "x", nil)}, wanted: []string{"y"},
			diff: []string{"y"},
		},
		{objects: []kinds.Change{gone("q")}},
		{objects: []kinds.Change{policy("r", "x")}, wanted: []string{"x"}},
		{objects: []kinds.Change{policy("s", "y")}, wanted: []string{"x", "y"}},
	} {
		before := b.Commit(time.Time{})
		b.Apply(step.objects)
		var wanted []string
		for _, n := range b.Wanted(textKind) {
			wanted = append(wanted, n.Name)
			if !slices.Equal(n.Namespaces, []string{"a"}) {
				t.Errorf("step %d: %s is wanted by %v", i, n.Name, n.Namespaces)
			}
		}
		if !slices.Equal(wanted, step.wanted) {
			t.Errorf("step %d: %v are wanted, not %v", i, wanted, step.wanted)
		}
		b.ApplyFacts(step.answers)
		s := b.Commit(time.Time{})
		if (s == before) != (step.objects == nil && step.diff == nil) {
			t.Errorf("step %d: a new Snapshot: %v", i, s != before)
		}
		var diff []string
		if s != before {
			for _, c := range s.Diff.Facts {
				diff = append(diff, c.Key().Name)
			}
		}
		if !slices.Equal(diff, step.diff) {
			t.Errorf("step %d: the diff lists %v, not %v", i, diff, step.diff)
		}
		for _, name := range []string{"x", "y", "z"} {
			value, ok := facts.Value[string](s.Fact(key(name)))
			if want, has := step.facts[name]; value != want || ok != has {
				t.Errorf("step %d: %s is %q, %v", i, name, value, ok)
			}
			if is, was := s.Fact(key(name)), before.Fact(key(name)); is != was && is != nil && was != nil && is.Spec == was.Spec {
				t.Errorf("step %d: %s has the same value and another pointer", i, name)
			}
		}
	}
}

// TestServicePorts: that a service has a port is a fact for as long as it is true and somebody needs it.
func TestServicePorts(t *testing.T) {
	k := facts.ServicePort("fd00::1", 80)
	b := snapshot.NewBuilder(
		snapshot.Options{Mesh: mesh.Default(), Catalog: needs(func(*kinds.Object) []facts.Want { return []facts.Want{{Key: k}} })})
	needs := kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "a", Name: "p"}
	b.Apply([]kinds.Change{{Key: needs, Object: &kinds.Object{Key: needs, Spec: &securityv1.RequestAuthentication{}}}})
	at := registry.ServiceKey{Namespace: "a", Host: "fd00::1"}
	for i, port := range []uint32{0, 80, 80, 81, 80, 0} {
		s := service(func(s *registry.Service) { s.Host, s.Ports = at.Host, []registry.Port{{Number: port}} })
		if port == 0 {
			s = nil
		}
		b.ApplyRegistry(registry.Changes{Services: map[registry.ServiceKey]*registry.Service{at: s}})
		b.ApplyServicePorts()
		if has := b.Commit(time.Time{}).Fact(k) != nil; has != (port == 80) {
			t.Errorf("step %d: the fact is there: %v", i, has)
		}
	}
}
