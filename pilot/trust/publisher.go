package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options of a Publisher.
type Options struct {
	Client dynamic.Interface // by which it writes
	// Source makes what reads ConfigMaps, in all namespaces, and hands them on.
	Source     func(h config.Handler) (config.Source, error)
	Namespaces func() []string           // that get the ConfigMaps
	Wanted     func() map[string]Content // by name of the ConfigMap
	Logger     *slog.Logger
}

// Content is one key of a ConfigMap, with its text.
type Content struct{ Key, Text string }

// Label is what each ConfigMap has, so that it can be told from others of its name.
const (
	Label      = "istio.io/config"
	LabelValue = "true"
)

// Publisher writes ConfigMaps. Wake and Findings may be called from any goroutine.
type Publisher struct {
	o    Options
	wake chan struct{} // has one message at most

	mu     sync.Mutex
	source config.Source // that runs; nil: none does
	seen   map[types.NamespacedName]seen
	taken  uint64 // how often the source has brought something
	synced bool
	failed map[types.NamespacedName]string // why it could not be written
}

// seen is what is known of a ConfigMap.
type seen struct {
	data    map[string]string
	labeled bool
}

// again is how long what could not be written is left alone.
const again = 5 * time.Second

// New returns a Publisher that does nothing yet.
func New(o Options) *Publisher {
	return &Publisher{o: o, wake: make(chan struct{}, 1)}
}

// Wake has the Publisher look again at what is wanted, and where.
func (p *Publisher) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run keeps the ConfigMaps as they should be until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	source, err := p.o.Source(p.take)
	if err != nil {
		p.o.Logger.Error("ConfigMaps with the roots cannot be read", "err", err)
		<-ctx.Done()
		return
	}
	p.reset(source)
	defer p.reset(nil)
	ended := make(chan struct{})
	safe.Go(p.o.Logger, "roots of namespaces", func() {
		defer close(ended)
		if err := source.Run(ctx); err != nil {
			p.o.Logger.Error("ConfigMaps with the roots are not read any more", "err", err)
		}
	})
	p.follow(ctx)
	<-ended
}

// follow writes what differs, each time that something may, until ctx ends.
func (p *Publisher) follow(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-retry.C:
		}
		p.publish(ctx)
		p.mu.Lock()
		if len(p.failed) > 0 {
			retry.Reset(again)
		}
		p.mu.Unlock()
	}
}

func (p *Publisher) reset(s config.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source, p.synced, p.seen, p.failed = s, false, map[types.NamespacedName]seen{}, map[types.NamespacedName]string{}
}

// take notes what the source brings.
func (p *Publisher) take(changes []kinds.Change) {
	p.mu.Lock()
	p.synced = true
	p.taken++
	for _, c := range changes {
		at := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		if c.Object == nil {
			delete(p.seen, at)
			continue
		}
		p.seen[at] = seen{c.Object.Spec.(*corev1.ConfigMap).Data, c.Object.Labels[Label] == LabelValue}
	}
	p.mu.Unlock()
	p.Wake()
}

// publish writes the ConfigMaps that are missing or differ.
func (p *Publisher) publish(ctx context.Context) {
	namespaces, wanted := p.o.Namespaces(), p.o.Wanted()
	p.mu.Lock()
	synced := p.synced
	p.mu.Unlock()
	if !synced {
		return
	}
	current := map[types.NamespacedName]bool{}
	for _, namespace := range namespaces {
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			at := types.NamespacedName{Namespace: namespace, Name: name}
			current[at] = true
			if ctx.Err() == nil {
				p.publishOne(ctx, at, wanted[name])
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.failed, func(at types.NamespacedName, _ string) bool { return !current[at] })
}

// publishOne writes a ConfigMap if it is missing or differs.
func (p *Publisher) publishOne(ctx context.Context, at types.NamespacedName, c Content) {
	p.mu.Lock()
	had, exists := p.seen[at]
	taken := p.taken
	p.mu.Unlock()
	if exists && had.labeled && had.data[c.Key] == c.Text {
		p.done(at, "")
		return
	}
	client := p.o.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(at.Namespace)
	err := write(ctx, client, at.Name, c, exists)
	switch {
	case err == nil:
		data := map[string]string{}
		maps.Copy(data, had.data)
		data[c.Key] = c.Text
		p.mu.Lock()
		if p.taken == taken { // what the source brought meanwhile may be newer
			p.seen[at] = seen{data, true} // until the source brings it
		}
		p.mu.Unlock()
		p.done(at, "")
		p.o.Logger.Debug("roots written", "namespace", at.Namespace, "name", at.Name)
	case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		p.done(at, "") // the namespace goes, or the ConfigMap has gone, which the source brings
	default:
		p.done(at, err.Error())
	}
}

// write creates a ConfigMap, or changes one.
func write(ctx context.Context, client dynamic.ResourceInterface, name string, c Content, exists bool) error {
	o := map[string]any{"metadata": map[string]any{"labels": map[string]any{Label: LabelValue}}, "data": map[string]any{c.Key: c.Text}}
	if !exists {
		u := &unstructured.Unstructured{Object: o}
		u.SetAPIVersion("v1")
		u.SetKind("ConfigMap")
		u.SetName(name)
		_, err := client.Create(ctx, u, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	patch, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// done notes how a write went, and logs what is new.
func (p *Publisher) done(at types.NamespacedName, problem string) {
	p.mu.Lock()
	last := p.failed[at]
	if problem == "" {
		delete(p.failed, at)
	} else {
		p.failed[at] = problem
	}
	p.mu.Unlock()
	if problem != last && problem != "" {
		p.o.Logger.Warn("a namespace does not get the roots", "namespace", at.Namespace, "name", at.Name, "err", problem)
	}
}

// Findings returns what cannot be read or written at present.
func (p *Publisher) Findings() []diag.Diagnostic {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []diag.Diagnostic
	if p.source != nil {
		list = append(list, p.source.Findings()...)
	}
	for at, problem := range p.failed {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "RootsNotWritten", Object: fmt.Sprintf("ConfigMap %s/%s", at.Namespace, at.Name),
			Message: "workloads of the namespace do not get the roots of the mesh: " + problem, Fix: "grant create and patch of it to this server's ServiceAccount; it is tried again",
		})
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Code, b.Code))
	})
	return list
}
