package external_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/pilot/external"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// namespace returns a change of a namespace in a cluster. The annotation "-" means that it was deleted.
func namespace(cluster, name, annotation string) kinds.Change {
	key := kinds.Key{Kind: kinds.Namespace, Name: name, Cluster: cluster}
	if annotation == "-" {
		return kinds.Change{Key: key}
	}
	return kinds.Change{Key: key, Object: &kinds.Object{Key: key, Annotations: map[string]string{external.Annotation: annotation}}}
}

// world is the environment of a Keeper of the cluster "one".
type world struct {
	mu          sync.Mutex
	kubeconfigs map[string]string
	kept        map[string]string // kubeconfigs that Keep was called with
	slow        chan struct{}     // Keep for the cluster "slow" returns when it is closed
}

func (w *world) run(t *testing.T, serves bool) *external.Keeper {
	w.kept, w.slow = map[string]string{}, make(chan struct{})
	k := external.New(external.Options{
		Cluster: "one", Namespace: "system", Serves: serves, Logger: slog.New(slog.DiscardHandler),
		Kubeconfig: func(cluster string) []byte {
			w.mu.Lock()
			defer w.mu.Unlock()
			if text, ok := w.kubeconfigs[cluster]; ok {
				return []byte(text)
			}
			return nil
		},
		Keep: func(ctx context.Context, cluster string, kubeconfig []byte) {
			w.mu.Lock()
			if w.kept[cluster] != "" {
				t.Errorf("%s is kept twice", cluster)
			}
			w.kept[cluster] = string(kubeconfig)
			w.mu.Unlock()
			defer func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.kept, cluster)
			}()
			if string(kubeconfig) == "bad" {
				panic("bad kubeconfig")
			}
			<-ctx.Done()
			if cluster == "slow" {
				<-w.slow
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = k.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		if len(w.kept) > 0 {
			t.Errorf("%v are kept after the end", w.kept)
		}
	})
	return k
}

func (w *world) want(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var have []string
	for _, cluster := range slices.Sorted(maps.Keys(w.kept)) {
		have = append(have, cluster+"="+w.kept[cluster])
	}
	if !slices.Equal(have, want) {
		t.Errorf("%s: %v, want %v", what, have, want)
	}
}

// TestKeeper checks that clusters are managed with their newest kubeconfig while they request it. A cluster whose
// Keep is slow to return, or fails, delays no other.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{kubeconfigs: map[string]string{"two": "2", "three": "3", "four": "4", "slow": "s"}}
		k := w.run(t, true)
		k.Notice([]kinds.Change{
			namespace("two", "system", "zero, one"), namespace("three", "system", "*"), namespace("four", "system", "zero"),
			namespace("five", "system", "one"), namespace("four", "other", "one"), namespace("", "system", "one"),
		})
		w.want(t, "those that ask", "three=3", "two=2")
		k.Notice([]kinds.Change{namespace("four", "system", "one"), namespace("three", "system", "")})
		w.want(t, "one more, one less", "four=4", "two=2")
		k.Notice([]kinds.Change{namespace("slow", "system", "one"), namespace("four", "system", "-")})
		w.want(t, "one namespace is gone", "slow=s", "two=2")

		w.mu.Lock()
		w.kubeconfigs = map[string]string{"two": "bad", "slow": "s2"}
		w.mu.Unlock()
		time.Sleep(11 * time.Second)
		w.want(t, "kubeconfigs have changed", "slow=s")
		w.mu.Lock()
		w.kubeconfigs["two"] = "good"
		w.mu.Unlock()
		time.Sleep(11 * time.Second)
		w.want(t, "one is good again", "slow=s", "two=good")
		close(w.slow)
		w.want(t, "the slow one has ended", "slow=s2", "two=good")
		if list := k.Findings(); len(list) != 0 {
			t.Errorf("%v", list)
		}
	})
}

// TestKeepsNothing checks that a control plane that manages no remote clusters leaves them alone and reports the
// clusters that name it.
func TestKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{kubeconfigs: map[string]string{"two": "2", "three": "3"}}
		k := w.run(t, false)
		k.Notice([]kinds.Change{namespace("two", "system", "one"), namespace("three", "system", "*")})
		time.Sleep(time.Minute)
		w.want(t, "none")
		list := k.Findings()
		if len(list) != 1 || list[0].Object != "Namespace system of cluster two" || !strings.Contains(list[0].Fix, "EXTERNAL_ISTIOD=true") {
			t.Errorf("%v", list)
		}
	})
}
