package engine

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
)

// TestSetByNameMatchesFreshOne: whatever changes, and whoever asks in which order, a cached Set of names holds
// what building every name would give. A name that fails keeps its last good resource, and equal content is one Set.
func TestSetByNameMatchesFreshOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const hosts = 4
		var c Cache
		var table envoy.NameInterner
		worlds := []map[string]string{{}} // by revision: the version of each host's assignments; "bad" panics
		resources := map[string]*envoy.Resource{}
		at := func(revision int, name string) *envoy.Resource {
			v := name + "=" + worlds[revision][names.ClusterHost(name)]
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
				d := &scope.Dirty{}
				d.All = rapid.IntRange(0, 9).Draw(t, "all") == 0
				for h := range hosts {
					if rapid.IntRange(0, 2).Draw(t, "change") > 0 {
						continue
					}
					host := fmt.Sprint("h", h)
					w[host] = rapid.SampledFrom([]string{"1", "2", "3", "bad"}).Draw(t, "version")
					switch {
					case d.All:
					case h%2 == 0:
						d.Hosts = append(d.Hosts, host)
					default:
						d.Endpoints = append(d.Endpoints, host)
					}
				}
				if rapid.IntRange(0, 9).Draw(t, "unknown") > 0 { // else nobody says what changed
					c.Advance(uint64(len(worlds)), d)
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
				g := ByName{
					Affected: func(d *scope.Dirty, list *envoy.Names) (affected []string) {
						for _, host := range slices.Concat(d.Hosts, d.Endpoints) {
							affected = slices.AppendSeq(affected, list.OfHost(host))
						}
						return affected
					},
					Build: func(name string) *envoy.Resource {
						if worlds[revision][names.ClusterHost(name)] == "bad" {
							panic("it is bad")
						}
						return at(revision, name)
					},
				}
				got := GetByName(&c, Key{}, uint64(revision), n, g)
				var good []string
				for _, name := range n.All() {
					r := got.Set.Get(name)
					if worlds[revision][names.ClusterHost(name)] != "bad" {
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
				if got.Set.Len() > n.Len() {
					t.Fatal("there is more than was asked for")
				}
				if n == lastList && slices.Equal(good, last) && len(good) == n.Len() && revision == len(worlds)-1 {
					g.Build = nil
					if again := GetByName(&c, Key{}, uint64(revision), n, g); again.Set != got.Set {
						t.Fatal("asked again, it is another Set")
					}
				}
				last, lastList = good, n
			}
		}
	})
}

// TestSetByNamesAreEvicted: a Set of names is evicted when nobody holds its names any more.
func TestSetByNamesAreEvicted(t *testing.T) {
	var c Cache
	var table envoy.NameInterner
	for i := range 10 {
		list := table.Intern([]string{fmt.Sprint(i)})
		GetByName(&c, Key{}, 1, list, ByName{Build: func(name string) *envoy.Resource { return &envoy.Resource{Name: name} }})
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if c.Len() == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d Sets are cached", c.Len())
		}
	}
}
