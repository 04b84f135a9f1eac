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

// The analysis of references begins a while after a change, when objects that belong together have come. Where objects
// change all the time, the pause after each run is many times as long as the run took, up to a bound.
const (
	analysisRest     = time.Second
	analysisPause    = 500
	maxAnalysisPause = 30 * time.Second
)

// Analyst looks for references between objects that lead nowhere, in a goroutine of its own.
type Analyst struct {
	world    *World
	Rest     time.Duration // how long objects that belong together may take to come, 1 s
	looked   chan struct{} // of one: the objects have been analysed
	changed  chan struct{} // of one: the objects have changed since the last run
	Findings config.Findings
	last     []diag.Diagnostic // what analysis.Run returned, sorted
	runs     atomic.Int64      // how often the objects were looked at

	// The fields below are owned by the goroutine that calls Committed.
	began  bool                            // whether there was a commit
	places map[kinds.Key]registry.Locality // of Nodes
}

// NewAnalyst makes an Analyst that has not looked yet.
func NewAnalyst(w *World) *Analyst {
	return &Analyst{world: w, Rest: analysisRest, looked: make(chan struct{}, 1), changed: make(chan struct{}, 1), places: map[kinds.Key]registry.Locality{}}
}

// Committed takes the changes of a commit, and returns at once. One goroutine calls it. The objects are analysed after
// the first commit in any case.
func (a *Analyst) Committed(batch []kinds.Change) {
	wakes := !a.began
	a.began = true
	for _, c := range batch {
		if a.world.isFact(c.Kind) {
			continue
		}
		switch c.Kind {
		case kinds.Node: // its status changes all the time, and endpoints have the labels of its place
			if !a.moved(c) {
				continue
			}
		case kinds.EndpointSlice, kinds.Secret: // in a cluster they change all the time, and hardly matter
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

// moved remembers the place of a Node, and reports whether it has changed.
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

// Wake has the objects analysed, and returns at once.
func (a *Analyst) Wake() { signal(a.changed) }

// Looked returns a channel that has a message after each analysis. It has one reader.
func (a *Analyst) Looked() <-chan struct{} { return a.looked }

// signal sends a message on a channel of one, unless there is one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run looks at the objects after each change, once for all that come in the meantime.
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
		case <-a.changed: // what follows sees that change too
		default:
		}
		began := time.Now()
		a.look()
		signal(a.looked)
		ended := time.Now()
		earliest = ended.Add(min(analysisPause*ended.Sub(began), maxAnalysisPause))
	}
}

// look brings the findings up to date.
func (a *Analyst) look() {
	a.runs.Add(1)
	list := a.world.references()
	slices.SortFunc(list, config.ByPosition)
	if slices.Equal(list, a.last) {
		return
	}
	a.last = list
	a.Findings.Set(a.world.Located(list), config.ByPosition, a.world.logger)
}

// Analyze returns what is wrong between the accepted objects, with positions.
func (w *World) Analyze() []diag.Diagnostic { return w.Located(w.references()) }

// Unsuppressed returns the findings without those that the annotations of accepted objects suppress.
func (w *World) Unsuppressed(found []diag.Diagnostic) []diag.Diagnostic {
	return analysis.Unsuppressed(found, w.Objects())
}

// references returns what is wrong between the accepted objects.
func (w *World) references() []diag.Diagnostic {
	objects := w.Objects()
	last := w.Snapshot()
	if last == nil {
		return nil
	}
	found := analysis.Run(objects, analysis.Options{
		Domain: w.o.Domain, Mesh: last.Mesh, Whole: w.o.whole(), Still: w.parts.Still, RepeatedText: last.RepeatedText, HostClusters: last.HostClusters, MeshConfig: w.o.meshKeys(),
		Advice: w.o.Advice, HTTP3: w.o.HTTP3, Concerns: w.o.Concerns, World: analysed{last},
	})
	return append(analysis.Unsuppressed(w.absentCredentials(objects), objects), w.aboutSources(found)...)
}

// aboutSources leaves out what is found about derived objects, which users cannot correct: their stages find what is
// wrong with their origins.
func (w *World) aboutSources(found []diag.Diagnostic) []diag.Diagnostic {
	if len(found) == 0 {
		return nil
	}
	derived := map[string]bool{}
	w.mu.Lock()
	for key := range w.stages.derived {
		derived[key.String()] = true
	}
	w.mu.Unlock()
	return slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return derived[d.Object] })
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
	return analysis.Pod{Ended: f.Ended, Addresses: f.Addresses, HostNetwork: f.HostNetwork, Ready: f.Ready, Ports: f.Ports, Named: true, Proxy: analysis.HasProxy(o.Labels), ProxyImage: f.ProxyImage}
}

// Slice reads an EndpointSlice.
func (analysed) Slice(o *kinds.Object) analysis.Slice {
	s := o.Spec.(*kube.SliceFacts)
	return analysis.Slice{Service: o.Labels[discoveryv1.LabelServiceName], Ports: s.Ports, Endpoints: len(s.Endpoints), Endpoint: func(i int) analysis.Endpoint {
		e := &s.Endpoints[i]
		out := analysis.Endpoint{Addresses: e.Addresses}
		if e.HasPod {
			out.Pod = kinds.Key{Kind: kinds.Pod, Namespace: cmp.Or(e.PodNamespace, o.Namespace), Name: e.Pod, Cluster: o.Cluster}
		}
		return out
	}}
}

// Located returns findings about objects of files with the positions of their fields. It reads each file once.
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

// positions reads a file. Without the file it knows no position.
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
