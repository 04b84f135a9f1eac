package translate

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestSubscriptionCacheMatchesFreshOne: whatever changes, and whoever asks in which order, a cached subscription holds
// what building every name would give. A name that fails keeps its last good resource, and equal content is one Set.
func TestSubscriptionCacheMatchesFreshOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const hosts = 4
		var b subscriptionCache
		tr := &Translator{}
		var table envoy.NameInterner
		worlds := []map[string]string{{}} // by revision: the version of each host's assignments; "bad" panics
		resources := map[string]*envoy.Resource{}
		at := func(revision int, name string) *envoy.Resource {
			v := name + "=" + worlds[revision][hostKeyOf(name)]
			if resources[v] == nil {
				resources[v] = &envoy.Resource{Name: name, Version: v}
			}
			return resources[v]
		}
		lists := []*envoy.Names{nil}
		var last []string // as the newest list was seen last, without failures
		var lastList *envoy.Names
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				w := maps.Clone(worlds[len(worlds)-1])
				c := &scope.Dirty{}
				c.All = rapid.IntRange(0, 9).Draw(t, "all") == 0
				for h := range hosts {
					if rapid.IntRange(0, 2).Draw(t, "change") > 0 {
						continue
					}
					host := fmt.Sprint("h", h)
					w[host] = rapid.SampledFrom([]string{"1", "2", "3", "bad"}).Draw(t, "version")
					switch {
					case c.All:
					case h%2 == 0:
						c.Hosts = append(c.Hosts, host)
					default:
						c.Endpoints = append(c.Endpoints, host)
					}
				}
				if rapid.IntRange(0, 9).Draw(t, "unknown") > 0 { // else nobody says what changed
					tr.history.record(uint64(len(worlds)), c)
				}
				worlds = append(worlds, w)
			case 1:
				from := rapid.SampledFrom(lists).Draw(t, "from")
				var list []string
				for h := range hosts {
					for p := range uint32(2) {
						if rapid.Bool().Draw(t, "name") {
							list = append(list, names.Cluster(names.Outbound, p+1, "", fmt.Sprint("h", h)))
						}
					}
				}
				if n := table.InternFrom(from, list); n != nil {
					lists = append(lists, n)
				}
			default:
				n := rapid.SampledFrom(lists).Draw(t, "list")
				if n == nil {
					continue
				}
				revision := max(0, len(worlds)-1-rapid.IntRange(0, 3).Draw(t, "behind"))
				v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: uint64(revision)}}, t: tr}
				got := b.get(v, subscriptionKey{typeURL: envoy.EndpointType, names: weakOf(n)}, n, func(name string) (*envoy.Resource, bool) {
					if worlds[revision][hostKeyOf(name)] == "bad" {
						panic("it is bad")
					}
					return at(revision, name), false
				})
				var good []string
				for _, name := range n.All() {
					r := got.set.Get(name)
					if worlds[revision][hostKeyOf(name)] != "bad" {
						if r != at(revision, name) {
							t.Fatalf("revision %d: %s is %v", revision, name, r)
						}
						good = append(good, r.Version)
						continue
					}
					if got.failed[name] == nil || r != nil && strings.HasSuffix(r.Version, "bad") {
						t.Fatalf("revision %d: %s fails, and is %v with error %v", revision, name, r, got.failed[name])
					}
				}
				if got.set.Len() > n.Len() {
					t.Fatal("there is more than was asked for")
				}
				if n == lastList && slices.Equal(good, last) && len(good) == n.Len() && revision == len(worlds)-1 {
					if again := b.get(v, subscriptionKey{typeURL: envoy.EndpointType, names: weakOf(n)}, n, nil); again.set != got.set {
						t.Fatal("asked again, it is another Set")
					}
				}
				last, lastList = good, n
			}
		}
	})
}

// TestSubscriptionsAreEvicted: a subscription is evicted when nobody holds its names any more.
func TestSubscriptionsAreEvicted(t *testing.T) {
	var b subscriptionCache
	var table envoy.NameInterner
	v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{}}}
	for i := range 10 {
		n := table.Intern([]string{fmt.Sprint(i)})
		b.get(v, subscriptionKey{names: weakOf(n)}, n, func(name string) (*envoy.Resource, bool) { return &envoy.Resource{Name: name}, false })
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		b.mu.Lock()
		n := len(b.entries)
		b.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d subscriptions are cached", n)
		}
	}
}

// CachedResources returns the number of assignments, route configurations, headers, Sets and subscriptions in the
// caches.
func (t *Translator) CachedResources() int {
	return t.assignments.Len() + t.routes.Len() + t.headers.Len() + t.CachedSets()
}

// CachedSets returns the number of Sets and subscriptions in the caches.
func (t *Translator) CachedSets() int {
	t.subscriptions.mu.Lock()
	defer t.subscriptions.mu.Unlock()
	t.sets.mu.Lock()
	defer t.sets.mu.Unlock()
	return len(t.subscriptions.entries) + len(t.sets.entries)
}
