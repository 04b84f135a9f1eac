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

// Annotation of the system namespace of a remote cluster lists the clusters whose control planes keep it.
const Annotation = names.AnnotationControlPlaneClusters

// Options of a Keeper.
type Options struct {
	Cluster    string                      // ID of the server's own cluster
	Namespace  string                      // the system namespace, in every cluster
	Serves     bool                        // whether the control plane keeps remote clusters at all
	Kubeconfig func(cluster string) []byte // nil: there is no such cluster
	// Keep keeps one cluster until ctx ends. It holds up no other.
	Keep   func(ctx context.Context, cluster string, kubeconfig []byte)
	Logger *slog.Logger
}

// Keeper follows which clusters are to be kept. Notice and Findings may be called from any goroutine.
type Keeper struct {
	o    Options
	wake chan struct{} // has one message at most

	mu    sync.Mutex
	asked map[string]string // by ID of the cluster: its annotation

	kept map[string]*kept // of Run alone
}

// kept is a cluster for which Keep runs.
type kept struct {
	kubeconfig []byte
	cancel     context.CancelFunc
	ended      chan struct{}
}

// pause is the time between two looks if nothing happens: a kubeconfig may be another.
const pause = 10 * time.Second

// New returns a Keeper that keeps nothing yet.
func New(o Options) *Keeper {
	return &Keeper{o: o, wake: make(chan struct{}, 1), asked: map[string]string{}, kept: map[string]*kept{}}
}

// Notice takes changes, of which those of the system namespaces of remote clusters count.
func (k *Keeper) Notice(batch []kinds.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range batch {
		if c.Kind != kinds.Namespace || c.Cluster == "" || c.Name != k.o.Namespace {
			continue
		}
		had := k.asked[c.Cluster]
		delete(k.asked, c.Cluster)
		if c.Object != nil && c.Object.Annotations[Annotation] != "" {
			k.asked[c.Cluster] = c.Object.Annotations[Annotation]
		}
		if had != k.asked[c.Cluster] {
			k.look()
		}
	}
}

// look has Run look again.
func (k *Keeper) look() {
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

// wanted returns the kubeconfigs of the clusters that are to be kept.
func (k *Keeper) wanted() map[string][]byte {
	k.mu.Lock()
	asked := maps.Clone(k.asked)
	k.mu.Unlock()
	list := map[string][]byte{}
	for cluster, annotation := range asked {
		if lists(annotation, "*") || lists(annotation, k.o.Cluster) {
			if kubeconfig := k.o.Kubeconfig(cluster); kubeconfig != nil {
				list[cluster] = kubeconfig
			}
		}
	}
	return list
}

// Run keeps the clusters until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	defer func() {
		for _, is := range k.kept {
			is.cancel()
			<-is.ended
		}
	}()
	for ctx.Err() == nil {
		if k.o.Serves {
			k.follow(ctx)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// follow starts and ends Keep so that it runs for the clusters that are wanted. It waits for no end: a cluster is kept
// anew once that has come.
func (k *Keeper) follow(ctx context.Context) {
	wanted := k.wanted()
	for cluster, is := range k.kept {
		select {
		case <-is.ended:
			delete(k.kept, cluster)
		default:
			if !bytes.Equal(wanted[cluster], is.kubeconfig) {
				is.cancel()
			}
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(wanted)) {
		if k.kept[cluster] != nil {
			continue
		}
		inner, cancel := context.WithCancel(ctx)
		is := &kept{wanted[cluster], cancel, make(chan struct{})}
		k.kept[cluster] = is
		k.o.Logger.Info("remote cluster is kept", "cluster", cluster)
		safe.Go(k.o.Logger, "remote cluster is kept", func() {
			defer func() {
				asked := inner.Err() != nil
				cancel()
				close(is.ended)
				if asked { // else it is kept anew at the next look, not at once
					k.look()
				}
			}()
			k.o.Keep(inner, cluster, is.kubeconfig)
			k.o.Logger.Info("remote cluster is kept no longer", "cluster", cluster)
		})
	}
}

// Findings returns which clusters ask in vain.
func (k *Keeper) Findings() []diag.Diagnostic {
	if k.o.Serves {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []diag.Diagnostic
	for _, cluster := range slices.Sorted(maps.Keys(k.asked)) {
		if !lists(k.asked[cluster], k.o.Cluster) {
			continue
		}
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "NotExternal", Object: kinds.Key{Kind: kinds.Namespace, Name: k.o.Namespace, Cluster: cluster}.String(),
			Field:   "metadata.annotations[" + Annotation + "]",
			Message: fmt.Sprintf("the control plane of cluster %s keeps neither webhooks nor roots of remote clusters", k.o.Cluster),
			Fix:     "set EXTERNAL_ISTIOD=true in the environment of the control plane, or remove the annotation",
		})
	}
	return list
}
