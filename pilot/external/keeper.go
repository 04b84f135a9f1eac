package external

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Annotation is the annotation of a remote cluster's system namespace that lists the clusters whose control planes
// manage it.
const Annotation = names.AnnotationControlPlaneClusters

// Options configure a Keeper.
type Options struct {
	// Cluster is the ID of the server's own cluster.
	Cluster   string
	Namespace string // system namespace, the same in every cluster
	Serves    bool   // the control plane manages remote clusters (EXTERNAL_ISTIOD)
	// Kubeconfig returns the kubeconfig of a remote cluster, or nil if there is no such cluster.
	Kubeconfig func(cluster string) []byte
	// Keep manages one cluster until ctx ends. Each call has its own goroutine.
	Keep   func(ctx context.Context, cluster string, kubeconfig []byte)
	Logger *slog.Logger
}

// Keeper tracks which remote clusters to manage. Notice and Findings may be called from any goroutine.
type Keeper struct {
	o    Options
	wake chan struct{} // capacity 1

	mu          sync.Mutex
	annotations map[string]string // values of Annotation, by cluster ID

	runs map[string]*run // by cluster ID; owned by the Run goroutine
}

// run is one call of Keep.
type run struct {
	kubeconfig []byte
	cancel     context.CancelFunc
	ended      chan struct{}
}

// resync is how often the Keeper reads the kubeconfigs. They change without a call of Notice.
const resync = 10 * time.Second

// New returns a Keeper that manages no cluster yet.
func New(o Options) *Keeper {
	return &Keeper{o: o, wake: make(chan struct{}, 1), annotations: map[string]string{}, runs: map[string]*run{}}
}

// Notice takes changes of objects. It acts on changes of the system namespaces of remote clusters and ignores the
// rest.
func (k *Keeper) Notice(batch []kinds.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range batch {
		if c.Kind != kinds.Namespace || c.Cluster == "" || c.Name != k.o.Namespace {
			continue
		}
		previous := k.annotations[c.Cluster]
		delete(k.annotations, c.Cluster)
		if c.Object != nil && c.Object.Annotations[Annotation] != "" {
			k.annotations[c.Cluster] = c.Object.Annotations[Annotation]
		}
		if previous != k.annotations[c.Cluster] {
			k.signal()
		}
	}
}

// signal wakes Run.
func (k *Keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// lists reports whether an annotation lists a cluster.
func lists(annotation, cluster string) bool {
	for id := range strings.SplitSeq(annotation, ",") {
		if strings.TrimSpace(id) == cluster {
			return true
		}
	}
	return false
}

// wanted returns the kubeconfigs of the clusters to manage, by cluster ID.
func (k *Keeper) wanted() map[string][]byte {
	k.mu.Lock()
	annotations := maps.Clone(k.annotations)
	k.mu.Unlock()
	list := map[string][]byte{}
	for cluster, annotation := range annotations {
		if lists(annotation, "*") || lists(annotation, k.o.Cluster) {
			if kubeconfig := k.o.Kubeconfig(cluster); kubeconfig != nil {
				list[cluster] = kubeconfig
			}
		}
	}
	return list
}

// Run manages the clusters until ctx ends, and returns nil when every call of Keep has returned.
func (k *Keeper) Run(ctx context.Context) error {
	defer func() {
		for _, run := range k.runs {
			run.cancel()
			<-run.ended
		}
	}()
	for ctx.Err() == nil {
		if k.o.Serves {
			k.follow(ctx)
		}
		timer := time.NewTimer(resync)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// follow starts and cancels calls of Keep so that they match wanted. It does not wait for a canceled call to return:
// follow runs again then, and starts the next call for the cluster.
func (k *Keeper) follow(ctx context.Context) {
	wanted := k.wanted()
	for cluster, run := range k.runs {
		select {
		case <-run.ended:
			delete(k.runs, cluster)
		default:
			if !bytes.Equal(wanted[cluster], run.kubeconfig) {
				run.cancel()
			}
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(wanted)) {
		if k.runs[cluster] != nil {
			continue
		}
		inner, cancel := context.WithCancel(ctx)
		run := &run{wanted[cluster], cancel, make(chan struct{})}
		k.runs[cluster] = run
		k.o.Logger.Info("started to manage remote cluster", "cluster", cluster)
		safe.Go(k.o.Logger, "remote cluster", func() {
			defer func() {
				canceled := inner.Err() != nil
				cancel()
				close(run.ended)
				if canceled { // Keep was canceled; if it returned by itself, it is called again after the next resync
					k.signal()
				}
			}()
			k.o.Keep(inner, cluster, run.kubeconfig)
			k.o.Logger.Info("stopped managing remote cluster", "cluster", cluster)
		})
	}
}

// Findings returns a finding for each cluster whose annotation names this control plane while it manages no remote
// clusters.
func (k *Keeper) Findings() []diag.Diagnostic {
	if k.o.Serves {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []diag.Diagnostic
	for _, cluster := range slices.Sorted(maps.Keys(k.annotations)) {
		if !lists(k.annotations[cluster], k.o.Cluster) {
			continue
		}
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "NotExternal", Object: kinds.Key{Kind: kinds.Namespace, Name: k.o.Namespace, Cluster: cluster}.String(),
			Field: "metadata.annotations[" + Annotation + "]",
			Message: fmt.Sprintf(
				"the annotation names cluster %s, whose control plane does not write webhooks and root ConfigMaps in remote clusters", k.o.Cluster),
			Fix: "set EXTERNAL_ISTIOD=true in the environment of the control plane, or remove the annotation",
		})
	}
	return list
}
