package ingest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

var testKinds = map[string]*kinds.Kind{
	"vs": kinds.VirtualService, "dr": kinds.DestinationRule, "svc": kinds.Service, "ns": kinds.Namespace,
	"es": kinds.EndpointSlice, "pod": kinds.Pod, "we": kinds.WorkloadEntry, "node": kinds.Node, "gc": kinds.GatewayClass,
}

// testChange reads <kind>/<namespace>/<name>=<uid>.
func testChange(s string) kinds.Change {
	s, uid, _ := strings.Cut(s, "=")
	f := strings.Split(s, "/")
	k := kinds.Key{Kind: testKinds[f[0]], Namespace: f[1], Name: f[2]}
	return kinds.Change{Key: k, Object: &kinds.Object{Key: k, UID: uid}}
}

func testChanges(s string) []kinds.Change {
	var list []kinds.Change
	for _, f := range strings.Fields(s) {
		list = append(list, testChange(f))
	}
	return list
}

func printChanges(list []kinds.Change) string {
	var b strings.Builder
	for _, c := range list {
		for short, k := range testKinds {
			if k == c.Kind {
				fmt.Fprintf(&b, " %s/%s/%s=%s", short, c.Namespace, c.Name, c.Object.UID)
			}
		}
	}
	return b.String()
}

func defaultGather() changeQueue {
	return changeQueue{after: 100 * time.Millisecond, max: 10 * time.Second, quiet: 10 * time.Millisecond, longestQuiet: 50 * time.Millisecond}
}

// TestThrottleRules runs the transcripts in testdata. "> TIME KIND/NS/NAME=VERSION …" adds changes at a time, "> TIME"
// lets time pass, "> set FIELD TIME" sets an option. A commit is printed as "TIME, first came in at TIME: changes".
func TestThrottleRules(t *testing.T) {
	files, err := filepath.Glob("testdata/throttle/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			must.Succeed(t, err)
			var got bytes.Buffer
			g := defaultGather()
			start := time.Unix(1000, 0)
			var wake time.Time
			step := func(now time.Time) {
				var batch []kinds.Change
				var received time.Time
				batch, received, wake = g.step(now)
				if len(batch) > 0 {
					fmt.Fprintf(&got, "%v, first came in at %v:%s\n", now.Sub(start), received.Sub(start), printChanges(batch))
				}
			}
			for line := range strings.Lines(string(want)) {
				line = strings.TrimRight(line, "\n")
				command, ok := strings.CutPrefix(line, "> ")
				if ok || line == "" || line[0] == '#' {
					fmt.Fprintln(&got, line)
				}
				if !ok {
					continue
				}
				if f := strings.Fields(command); f[0] == "set" {
					d, err := time.ParseDuration(f[2])
					must.Succeed(t, err)
					*map[string]*time.Duration{"after": &g.after, "max": &g.max}[f[1]] = d
					continue
				}
				at, changes, _ := strings.Cut(command, " ")
				d, err := time.ParseDuration(at)
				must.Succeed(t, err)
				now := start.Add(d)
				for !wake.IsZero() && !wake.After(now) {
					step(wake)
				}
				if changes != "" {
					g.add(now, testChanges(changes))
				}
				step(now)
			}
			if *update {
				must.Succeed(t, os.WriteFile(file, got.Bytes(), 0o644))
				return
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Whatever comes and whenever, the last change of each object is committed last, nothing waits beyond its bound, and
// what came together goes together.
func TestThrottleHistories(t *testing.T) {
	all := []string{"vs", "svc", "es", "pod"}
	rapid.Check(t, func(t *rapid.T) {
		g := defaultGather()
		start := time.Unix(1000, 0)
		now := start
		added, committed := map[kinds.Key]string{}, map[kinds.Key]string{}
		var wake time.Time
		batches := map[string]int{} // changes of one config Add that no later one replaced, by its number
		step := func(at time.Time) {
			batch, received, w := g.step(at)
			wake = w
			seen := map[string]int{}
			for _, c := range batch {
				committed[c.Key] = c.Object.UID
				seen[strings.SplitN(c.Object.UID, ".", 2)[0]]++
			}
			for n, count := range seen {
				if want, ok := batches[n]; ok && want != count {
					t.Fatalf("%d of %d changes that came together were committed: %s", count, want, printChanges(batch))
				}
			}
			// 100 ms after the last push of each of the three namespaces, which changes for several of them may have
			// tied together one by one.
			if len(batch) > 0 && at.Sub(received) > 300*time.Millisecond {
				t.Fatalf("a change waited %v", at.Sub(received))
			}
			if !wake.IsZero() && !wake.After(at) {
				t.Fatalf("asked to be woken at %v, which is not after %v", wake, at)
			}
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "adds") {
			next := now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 5, 11, 60, 130}).Draw(t, "ms")) * time.Millisecond)
			for !wake.IsZero() && !wake.After(next) {
				step(wake)
			}
			now = next
			n := rapid.IntRange(1, 4).Draw(t, "changes")
			var list []kinds.Change
			for j := range n {
				c := testChange(fmt.Sprintf("%s/%s/%d=%d.%d", rapid.SampledFrom(all).Draw(t, "kind"), rapid.SampledFrom(
					[]string{"a", "b", "c"},
				).Draw(t, "ns"),
					rapid.IntRange(0, 3).Draw(t, "name"), i, j))
				list = append(list, c)
				if old, ok := added[c.Key]; ok {
					delete(batches, strings.SplitN(old, ".", 2)[0])
				}
				added[c.Key] = c.Object.UID
			}
			distinct := map[kinds.Key]bool{}
			for _, c := range list {
				distinct[c.Key] = true
			}
			if len(distinct) == n {
				batches[fmt.Sprint(i)] = n
			}
			g.add(now, list)
			step(now)
		}
		for !wake.IsZero() {
			step(wake)
		}
		if diff := cmp.Diff(added, committed, cmp.Comparer(func(a, b *kinds.Kind) bool { return a == b })); diff != "" {
			t.Fatalf("-added +committed:\n%s", diff)
		}
	})
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		start := time.Now()
		busy := make(chan struct{}, 1)
		reg := prometheus.NewRegistry()
		th := NewThrottle(ThrottleOptions{Metrics: reg, Commit: func(batch []kinds.Change, received time.Time) {
			mu.Lock()
			log = append(log, fmt.Sprintf("%v:%s", time.Since(start), printChanges(batch)))
			mu.Unlock()
			if slices.ContainsFunc(batch, func(c kinds.Change) bool { return c.Name == "poison" }) {
				panic("commit failed")
			}
			if slices.ContainsFunc(batch, func(c kinds.Change) bool { return c.Name == "slow" }) {
				busy <- struct{}{}
				time.Sleep(time.Second)
			}
		}})
		th.Add(testChanges("es/a/early=1")) // waits for the first load
		synctest.Wait()
		th.Take(testChanges("vs/b/first=1"))
		synctest.Wait()
		th.Take(testChanges("es/a/e=1"))
		synctest.Wait()
		th.Add(testChanges("vs/a/v=1"))
		time.Sleep(5 * time.Millisecond)
		th.Add(testChanges("vs/a/w=1"))
		time.Sleep(20 * time.Millisecond)
		th.Add(testChanges("es/a/slow=1")) // what comes during a commit waits for it, together
		<-busy
		th.Add(testChanges("es/a/e=2"))
		th.Add(testChanges("es/a/poison=1"))
		th.Add(testChanges("svc/a/s=1"))
		time.Sleep(2 * time.Second)
		th.Add(testChanges("es/a/e=3")) // a commit that panicked ends nothing
		synctest.Wait()
		th.Close()
		want := []string{
			"0s: vs/b/first=1",
			"0s: es/a/early=1",
			"0s: es/a/e=1",
			"15ms: vs/a/v=1 vs/a/w=1",
			"25ms: es/a/slow=1",
			"1.025s: es/a/e=2 es/a/poison=1 svc/a/s=1",
			"2.025s: es/a/e=3",
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		families, err := reg.Gather()
		must.Succeed(t, err)
		counted := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "pilot_inbound_updates" {
					counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if diff := cmp.Diff(map[string]float64{"config": 2, "eds": 6, "svc": 1, "svcdelete": 0}, counted); diff != "" {
			t.Errorf("pilot_inbound_updates (-want +got):\n%s", diff)
		}
	})
}
