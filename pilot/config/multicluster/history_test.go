package multicluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Secrets that change while sources sync, end and start leave what the last of them holds.
func TestConcurrentEvents(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh) {
		for _, server := range []string{"b1", "b2", "b3"} {
			m.servers.write(server, "x", server)
			m.servers.write(server, server, "1")
		}
		var wg sync.WaitGroup
		for _, name := range []string{"one", "two"} {
			wg.Go(func() {
				for i := range 300 {
					if i%7 == 0 {
						m.Handle([]kinds.Change{noSecret(name)})
					}
					m.Handle([]kinds.Change{secret(name, 0, "b-"+name, fmt.Sprint("b", i%3+1), "c", fmt.Sprint("b", i%2+1))})
					if i%20 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				for _, source := range m.servers.sources("") {
					select {
					case source.crash <- errors.New("lost"):
					case <-source.done:
					}
				}
				m.Findings()
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		time.Sleep(2 * time.Minute)
		m.expect(t, "b-one: b3=1 x=b3; b-two: b3=1 x=b3; c: b2=1 x=b2", "b-one=synced b-two=synced c=synced", "DuplicateCluster two c")
		if n := len(m.servers.sources("")); n != 3 {
			t.Errorf("%d sources", n)
		}
	})
}

// step is one event of a history.
type step struct {
	what   string // secrets, write, crash, wait
	names  []string
	data   []map[string]string // of each Secret: server by cluster; nil deletes it
	server string
	object string
	value  string
}

func drawStep(t *rapid.T) step {
	clusters, servers := rapid.SampledFrom([]string{"b", "c", "own"}), rapid.SampledFrom(
		[]string{"b1", "b2", "b3", "bad1", "hang1", "panic1", ""},
	)
	s := step{what: rapid.SampledFrom([]string{"secrets", "secrets", "secrets", "write", "write", "crash", "wait"}).Draw(t, "what")}
	switch s.what {
	case "secrets":
		s.names = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"one", "two", "three"}), 1, 3, rapid.ID).Draw(t, "names")
		for range s.names {
			s.data = append(s.data, rapid.OneOf(rapid.Just(map[string]string(nil)), rapid.MapOfN(clusters, servers, 0, 3)).Draw(t, "data"))
		}
	case "write":
		s.server = rapid.SampledFrom([]string{"b1", "b2", "b3"}).Draw(t, "server")
		s.object = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "object")
		s.value = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")
	case "crash":
		s.server = rapid.SampledFrom([]string{"b1", "b2", "b3"}).Draw(t, "server")
	}
	return s
}

// The model: which Secrets there are, and of each cluster the last server that worked.
type model struct {
	secrets map[string]map[string]string
	ages    map[string]int
	working map[string]string
}

func (m *model) want() map[string]string {
	names := slices.SortedFunc(maps.Keys(m.secrets), func(a, b string) int { return m.ages[b] - m.ages[a] })
	want := map[string]string{}
	for _, name := range names {
		for cluster, server := range m.secrets[name] {
			if _, dup := want[cluster]; !dup && cluster != "own" {
				want[cluster] = server
			}
		}
	}
	return want
}

func (m *model) settle() {
	want := m.want()
	maps.DeleteFunc(m.working, func(cluster, _ string) bool { _, ok := want[cluster]; return !ok })
	for cluster, server := range want {
		if strings.HasPrefix(server, "b") && !strings.HasPrefix(server, "bad") {
			m.working[cluster] = server
		}
	}
}

// Any history of Secrets, of what is in the clusters and of sources that end ends as the model does, with no more
// sources than are needed.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 25).Draw(rt, "steps")
		var failed error
		synctest.Test(t, func(t *testing.T) { failed = history(t.Context(), steps) })
		if failed != nil {
			rt.Fatal(failed)
		}
	})
}

func history(ctx context.Context, steps []step) error {
	m := newMesh()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	ages := map[string]int{"one": 3, "two": 2, "three": 1}
	expect := model{map[string]map[string]string{}, ages, map[string]string{}}
	m.Handle(nil)
	synctest.Wait() // no cluster is awaited
	for i, s := range steps {
		switch s.what {
		case "secrets":
			var changes []kinds.Change
			for j, name := range s.names {
				if s.data[j] == nil {
					delete(expect.secrets, name)
					changes = append(changes, noSecret(name))
					continue
				}
				expect.secrets[name] = s.data[j]
				var pairs []string
				for cluster, server := range s.data[j] {
					pairs = append(pairs, cluster, server)
				}
				changes = append(changes, secret(name, ages[name], pairs...))
			}
			m.Handle(changes)
		case "write":
			if m.servers.content[s.server][s.object] != s.value {
				m.servers.write(s.server, s.object, s.value)
			}
		case "crash":
			for _, source := range m.servers.sources(s.server) {
				source.crash <- errors.New("lost")
			}
			time.Sleep(time.Second)
		case "wait":
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		expect.settle()
		if err := expect.check(m); err != nil {
			return fmt.Errorf("after step %d: %w", i, err)
		}
	}
	return nil
}

func (m *model) check(got *mesh) error {
	want := m.want()
	state, sources := map[string]map[string]string{}, map[string]int{}
	for cluster, server := range m.working {
		state[cluster] = got.servers.content[server]
		sources[server]++
	}
	for cluster, server := range want {
		if strings.HasPrefix(server, "hang") && server != m.working[cluster] {
			sources[server]++
		}
	}
	if err := got.check(); err != nil {
		return err
	}
	if have := got.state(); have != show(state) {
		return fmt.Errorf("in force: %q, want %q", have, show(state))
	}
	for _, source := range got.servers.sources("") {
		sources[source.server]--
	}
	for server, n := range sources {
		if n != 0 {
			return fmt.Errorf("%d too few sources of %s", n, server)
		}
	}
	clusters := got.Clusters()
	if len(clusters) != len(want) {
		return fmt.Errorf("clusters %v, want %v", clusters, want)
	}
	for _, c := range clusters {
		if _, works := m.working[c.ID]; works != (c.SyncStatus == "synced") || got.Lacks(c.ID) == works {
			return fmt.Errorf("%s is %s, lacking: %v", c.ID, c.SyncStatus, got.Lacks(c.ID))
		}
	}
	return nil
}
