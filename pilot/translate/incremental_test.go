package translate_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
)

// checkHistory has a long-lived Translator follow a history, and describes where it first differs from a fresh one in a
// world made at once. hide may remove something from what each change makes dirty. asked reports which proxies ask at a
// step; the others skip it.
func checkHistory(t tb, refs *references, steps []generatedStep, asked func(step, who int) bool, hide func(*scope.Dirty)) string {
	meshes, proxies := generatedMeshes(), generatedProxies()
	tr := newTranslator(1 << 20)
	options := snapshot.Options{Domain: "cluster.local", Mesh: meshes[0], Catalog: catalog.Features()}
	b := snapshot.NewBuilder(options)
	world := generatedStep{map[registry.ServiceKey]*registry.Service{}, map[registry.ServiceKey][]*registry.Endpoint{},
		map[kinds.Key]*kinds.Object{}, 0}
	commit := func(b *snapshot.Builder, s generatedStep) *snapshot.Snapshot {
		b.SetMesh(meshes[s.mesh])
		b.ApplyRegistry(registry.Changes{Services: s.services, Endpoints: s.endpoints})
		var changes []kinds.Change
		for k, o := range s.objects {
			changes = append(changes, kinds.Change{Key: k, Object: o})
		}
		b.Apply(changes)
		return b.Commit(time.Time{})
	}
	type version struct {
		snapshot *snapshot.Snapshot
		config   config
	}
	var last *snapshot.Snapshot
	past := map[string][]version{}
	before, lists, members := map[string]config{}, newSubscriptions(tr), cohortsOfProxies{}
	for i, step := range steps {
		s := commit(b, step)
		if s == last {
			continue
		}
		tr.Prepare(s)
		if hide != nil && i > 0 {
			hide(tr.Changes())
		}
		maps.Copy(world.services, step.services)
		maps.Copy(world.endpoints, step.endpoints)
		maps.Copy(world.objects, step.objects)
		world.mesh = step.mesh
		present := generatedStep{maps.Clone(world.services), maps.Clone(world.endpoints), maps.Clone(world.objects), world.mesh}
		maps.DeleteFunc(present.services, func(_ registry.ServiceKey, s *registry.Service) bool { return s == nil })
		maps.DeleteFunc(present.objects, func(_ kinds.Key, o *kinds.Object) bool { return o == nil })
		once, fresh := commit(snapshot.NewBuilder(options), present), newTranslator(0)
		for who, name := range slices.Sorted(maps.Keys(proxies)) {
			if !asked(i, who) {
				delete(before, name)
				continue
			}
			got := refs.config(t, tr, s, proxies[name])
			if d := differences(refs.config(t, fresh, once, proxies[name]), got); d != nil {
				return fmt.Sprintf("step %d, %s: a world made at once (before) and the history (after) differ in\n%s", i, name, strings.Join(d, "\n"))
			}
			if d := tr.CheckPartitions(s, tr.ResolveCohort(s, proxies[name]), got.routeNames()); hide == nil && d != "" {
				return fmt.Sprintf("step %d, %s: %s", i, name, d)
			}
			if d := members.differ(tr, s, name, proxies[name]); d != "" {
				return fmt.Sprintf("step %d: %s", i, d)
			}
			if d := lists.differ(s, name, proxies[name], got); d != "" {
				return fmt.Sprintf("step %d, %s: %s", i, name, d)
			}
			if hide == nil && before[name] != nil { // a stream that is late is still at the Snapshot before
				if d := differences(before[name], refs.config(t, tr, last, proxies[name])); d != nil {
					return fmt.Sprintf("step %d, %s: the Snapshot before is not what it was: %v", i, name, d)
				}
			}
			before[name] = got
			past[name] = append(past[name], version{s, got})
			if n := len(past[name]); hide == nil && n > 4 { // one that is very late
				if d := differences(past[name][n-5].config, refs.config(t, tr, past[name][n-5].snapshot, proxies[name])); d != nil {
					return fmt.Sprintf("step %d, %s: the Snapshot of four looks before is not what it was: %v", i, name, d)
				}
			}
		}
		last = s
	}
	return ""
}

// subscriptions holds what proxies subscribe to by name. The same list of names is the same pointer.
type subscriptions struct {
	translator *translate.Translator
	names      envoy.NameInterner
	held       map[string]*envoy.Names
}

func newSubscriptions(t *translate.Translator) *subscriptions {
	return &subscriptions{translator: t, held: map[string]*envoy.Names{}}
}

// differ returns an error text if the resources of a subscription are not those of a config.
func (b *subscriptions) differ(s *snapshot.Snapshot, who string, p *node.Proxy, want config) string {
	c := b.translator.ResolveCohort(s, p)
	for prefix, typeURL := range map[string]string{assignments: envoy.EndpointType, routings: envoy.RouteType,
		extensions: envoy.ExtensionType} {
		var list []string
		for k := range want {
			if name, ok := strings.CutPrefix(k, prefix); ok {
				list = append(list, name)
			}
		}
		b.held[who+prefix] = b.names.Intern(list)
		got, err := b.translator.Get(s, c, typeURL, b.held[who+prefix])
		if err != nil {
			return err.Error()
		}
		for _, name := range list {
			if r := got.Get(name); r == nil || !bytes.Equal(r.Bytes(), want[prefix+name].Bytes()) {
				return prefix + name + " is another where it is subscribed to"
			}
		}
	}
	return ""
}

// routeNames returns the names of the route configurations.
func (p config) routeNames() []string {
	var list []string
	for k := range p {
		if name, ok := strings.CutPrefix(k, routings); ok {
			list = append(list, name)
		}
	}
	return list
}

func always(int, int) bool { return true }

// TestIncrementalSetsMatchFreshOnes: Sets that are made incrementally from Snapshot to Snapshot are what a fresh
// Translator makes of the newest one, also for streams that missed some.
func TestIncrementalSetsMatchFreshOnes(t *testing.T) {
	histories.FewerWithRace(t)
	refs, gen := &references{seen: map[string][]string{}}, generatedWorlds()
	rapid.Check(t, func(t *rapid.T) {
		refs.held = nil // with the names goes the translator that was asked for them
		steps := gen.Draw(t, "steps")
		skips := rapid.Uint64().Draw(t, "skips")
		if d := checkHistory(t, refs, steps, func(step, who int) bool { return skips>>((step*6+who)%64)&1 == 0 }, nil); d != "" {
			t.Fatal(d)
		}
	})
}

// TestHiddenChangesAreFound hides each kind of dirty row from the caches. The histories must notice it, as they would
// notice an invalidation rule that is too narrow.
func TestHiddenChangesAreFound(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	refs, gen := &references{seen: map[string][]string{}}, generatedWorlds()
	for what, hide := range map[string]func(*scope.Dirty){
		"all":            func(c *scope.Dirty) { c.All = false },
		"hosts":          func(c *scope.Dirty) { c.Hosts = nil },
		"the first host": func(c *scope.Dirty) { c.Hosts = c.Hosts[min(1, len(c.Hosts)):] },
		"the last host":  func(c *scope.Dirty) { c.Hosts = c.Hosts[:max(0, len(c.Hosts)-1)] },
		"endpoints":      func(c *scope.Dirty) { c.Endpoints = nil },
		"places":         func(c *scope.Dirty) { c.Listeners = nil },
		"the wildcard": func(c *scope.Dirty) {
			c.Listeners = slices.DeleteFunc(c.Listeners, func(p scope.ListenerKey) bool { return p.Wildcard })
		},
		"places addressed": func(c *scope.Dirty) {
			c.Listeners = slices.DeleteFunc(c.Listeners, func(p scope.ListenerKey) bool { return p.Address != "" })
		},
	} {
		found := false
		for seed := 0; seed < 2000 && !found; seed++ {
			found = checkHistory(t, refs, gen.Example(seed), always, hide) != ""
		}
		if !found {
			t.Errorf("nobody notices that %s is hidden", what)
		}
	}
}
