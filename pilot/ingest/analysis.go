package ingest

import (
	"cmp"
	"context"
	"io"
	"iter"
	"os"
	"slices"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// Analysis begins a while after a change, so that objects that belong together arrive first. Under constant change, the
// pause after each run is analysisPause times the duration of the run, but at most maxAnalysisPause.
const (
	analysisRest     = time.Second
	analysisPause    = 500
	maxAnalysisPause = 30 * time.Second
)

// Analyst finds references between objects that lead nowhere. It runs in a goroutine of its own.
type Analyst struct {
	world    *World
	Rest     time.Duration // wait for objects that belong together; default 1 s
	analyzed chan struct{} // capacity 1; receives after each analysis
	changed  chan struct{} // capacity 1; receives when objects have changed since the last run
	Findings config.Findings
	last     []diag.Diagnostic // what analysis.Run returned, sorted
	runs     atomic.Int64      // number of analyses

	// The fields below are owned by the goroutine that calls Committed.
	began  bool                            // true after the first commit
	places map[kinds.Key]registry.Locality // locality of each Node
}

// NewAnalyst returns an Analyst that has not run.
func NewAnalyst(w *World) *Analyst {
	return &Analyst{
		world: w, Rest: analysisRest, analyzed: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		places: map[kinds.Key]registry.Locality{},
	}
}

// Committed takes the changes of a commit and schedules an analysis if they can affect one. It does not block. Only one
// goroutine may call it. The first commit always schedules an analysis.
func (a *Analyst) Committed(batch []kinds.Change) {
	wakes := !a.began
	a.began = true
	for _, c := range batch {
		if a.world.isFact(c.Kind) {
			continue
		}
		switch c.Kind {
		// The status of a Node changes all the time. Only its locality matters, which endpoints inherit.
		case kinds.Node:
			if !a.moved(c) {
				continue
			}
		// They change all the time in a cluster, and findings rarely depend on them.
		case kinds.EndpointSlice, kinds.Secret:
			if !a.world.o.whole() {
				continue
			}
		}
		wakes = true
	}
	if wakes {
		a.Wake()
	}
}

// moved records the locality of a Node and reports whether it changed.
func (a *Analyst) moved(c kinds.Change) bool {
	now := kube.LocalityOfNode(c.Object)
	if a.places[c.Key] == now {
		return false
	}
	if a.places[c.Key] = now; now == (registry.Locality{}) {
		delete(a.places, c.Key)
	}
	return true
}

// Wake schedules an analysis. It does not block.
func (a *Analyst) Wake() { signal(a.changed) }

// Analyzed returns a channel that receives after each analysis. Only one goroutine may read it.
func (a *Analyst) Analyzed() <-chan struct{} { return a.analyzed }

// signal sends on a channel with capacity 1, unless a message is already waiting.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run analyses the objects after each change until ctx ends. Changes that arrive together are analysed once.
func (a *Analyst) Run(ctx context.Context) error {
	var earliest time.Time // of the next run
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(a.Rest, time.Until(earliest))):
		}
		select {
		case <-a.changed: // the analysis below sees that change too
		default:
		}
		began := time.Now()
		a.analyze()
		signal(a.analyzed)
		ended := time.Now()
		earliest = ended.Add(min(analysisPause*ended.Sub(began), maxAnalysisPause))
	}
}

// analyze updates the findings.
func (a *Analyst) analyze() {
	a.runs.Add(1)
	list := a.world.references()
	slices.SortFunc(list, config.ByPosition)
	if slices.Equal(list, a.last) {
		return
	}
	a.last = list
	a.Findings.Set(a.world.Located(list), config.ByPosition, a.world.logger)
}

// Analyze returns the findings about references between accepted objects, with positions in files.
func (w *World) Analyze() []diag.Diagnostic { return w.Located(w.references()) }

// Unsuppressed removes the findings that annotations of accepted objects suppress.
func (w *World) Unsuppressed(found []diag.Diagnostic) []diag.Diagnostic {
	return analysis.Unsuppressed(found, w.Objects())
}

// references returns the findings about references between accepted objects.
func (w *World) references() []diag.Diagnostic {
	objects := w.Objects()
	last := w.Snapshot()
	if last == nil {
		return nil
	}
	derived := w.derivedKeys()
	found := analysis.Run(objects, analysis.Options{
		Domain: w.o.Domain, Mesh: last.Mesh, Whole: w.o.whole(), Still: w.parts.Still, RepeatedText: last.RepeatedText,
		HostClusters: last.HostClusters, MeshConfig: w.o.meshKeys(),
		Advice: w.o.Advice, HTTP3: w.o.HTTP3, ScopedGateways: w.o.ScopedGateways,
		PersistentSessions: w.o.PersistentSessions, MultiCluster: w.o.MultiCluster, World: analysed{last},
		// Users cannot correct derived objects. The stages report what is wrong with the objects that they are derived from.
		Concerns: func(o *kinds.Object) bool { return !derived[o.Key] && (w.o.Concerns == nil || w.o.Concerns(o)) },
	})
	return append(analysis.Unsuppressed(w.absentCredentials(objects), objects), found...)
}

// derivedKeys returns the keys of the derived objects in force.
func (w *World) derivedKeys() map[kinds.Key]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make(map[kinds.Key]bool, len(w.stages.derived))
	for key := range w.stages.derived {
		keys[key] = true
	}
	return keys
}

// analysed is an analysis.World.
type analysed struct{ snapshot *snapshot.Snapshot }

// Endpoints yields the labels of each endpoint of a host.
func (a analysed) Endpoints(host string) iter.Seq[analysis.Labels] {
	return func(yield func(analysis.Labels) bool) {
		for service := range a.snapshot.ServicesByHost(host) {
			for _, e := range a.snapshot.Endpoints(service.Key()).List {
				if !yield(e.AllLabels()) {
					return
				}
			}
		}
	}
}

// Pod reads a Pod.
func (analysed) Pod(o *kinds.Object) analysis.Pod {
	f := o.Spec.(*kube.PodFacts)
	return analysis.Pod{
		Ended: f.Ended, Addresses: f.Addresses, HostNetwork: f.HostNetwork, Ready: f.Ready, Ports: f.Ports, Named: true,
		Account: cmp.Or(f.ServiceAccount, "default"), Proxy: analysis.HasProxy(o.Labels), ProxyImage: f.ProxyImage,
	}
}

// Slice reads an EndpointSlice.
func (analysed) Slice(o *kinds.Object) analysis.Slice {
	s := o.Spec.(*kube.SliceFacts)
	endpoint := func(i int) analysis.Endpoint {
		e := &s.Endpoints[i]
		out := analysis.Endpoint{Addresses: e.Addresses}
		if e.HasPod {
			out.Pod = kinds.Key{Kind: kinds.Pod, Namespace: cmp.Or(e.PodNamespace, o.Namespace), Name: e.Pod, Cluster: o.Cluster}
		}
		return out
	}
	return analysis.Slice{
		Service: o.Labels[discoveryv1.LabelServiceName], Ports: s.Ports, Endpoints: len(s.Endpoints), Endpoint: endpoint,
	}
}

// Located adds the position of the field to each finding about an object of a file. It reads each file once.
func (w *World) Located(list []diag.Diagnostic) []diag.Diagnostic {
	files := map[string]*validation.Positions{}
	out := make([]diag.Diagnostic, 0, len(list))
	for _, d := range list {
		if d.File != "" {
			p, known := files[d.File]
			if !known {
				p = w.o.positions(d.File)
				files[d.File] = p
			}
			if line, column, ok := p.Of(d.Object, d.Field); ok {
				d.Line, d.Column = line, column
			}
		}
		out = append(out, d)
	}
	return out
}

// positions parses a file for the positions of fields. It knows no position if the file cannot be read.
func (o Options) positions(file string) *validation.Positions {
	if data, known := o.Texts.Of(file); known {
		return validation.NewPositionsIn(data, cmp.Or(o.Texts.Namespace, metav1.NamespaceDefault))
	}
	f, err := os.Open(file)
	if err != nil {
		return validation.NewPositions(nil)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, cmp.Or(o.Limits.FileSize, 1)))
	if err != nil {
		data = nil
	}
	return validation.NewPositions(data)
}
