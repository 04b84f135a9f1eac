package crd

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// feed reads the objects of a kind, or the selected ones, by one list and watch.
type feed struct {
	watched
	s    *Source
	kind *kinds.Kind
	only Restriction
	core *core // nil if a CustomResourceDefinition defines the kind

	// loaded is true after the first list. Most later events do not change an object.
	loaded atomic.Bool

	decoding sync.Mutex // guards intern and masked
	intern   *interner
	masked   []byte // reused buffer

	// cancel and done are owned by the goroutine that starts and stops the feed.
	cancel context.CancelFunc
	done   chan struct{}

	// The fields below are guarded by s.mu.
	running bool
	synced  bool
	gone    bool              // discovery did not have the kind after the last 404
	present map[name]struct{} // names of the objects; nil unless the feed reads wanted objects

	// entries is owned by the feed's goroutine, and after its end by the goroutine that waited for the end.
	entries map[name]entry
}

type name struct{ namespace, name string }

// entry is one object. Objects of core kinds have no versions, because they are always usable and there are many of
// them.
type entry struct {
	fingerprint uint64    // of the last version
	versions    *versions // nil for a core kind; replaced, never modified
}

type versions struct {
	uid string
	config.Versions
}

// last returns the versions of the object, or the zero value.
func (e entry) last() versions {
	if e.versions == nil {
		return versions{}
	}
	return *e.versions
}

func newFeed(s *Source, k *kinds.Kind, only Restriction) *feed {
	f := &feed{s: s, kind: k, core: coreOf(k), only: only, intern: newInterner(), entries: map[name]entry{}}
	f.watched = watched{source: s, group: k.Group, plural: k.Plural, versions: k.Versions, item: f.item, store: f, selectors: f.requests()}
	f.watched.protobuf = f.core != nil
	f.watched.onMissing = f.missing
	return f
}

func (f *feed) String() string {
	if len(f.only.Names) == 1 {
		return f.kind.Name + " " + f.only.Namespace + "/" + f.only.Names[0]
	}
	return f.kind.Name
}

// requests returns the selectors of the requests: the restriction, and the objects of the kind that are needed at all.
func (f *feed) requests() selectors {
	out := selectors{namespace: f.only.Namespace, labels: f.only.Labels}
	if len(f.only.Names) == 1 {
		out.fields = "metadata.name=" + f.only.Names[0]
	}
	switch f.kind {
	case kinds.Pod:
		out.fields = join(out.fields, "status.phase!=Failed")
	case kinds.EndpointSlice:
		out.labels = join(out.labels, names.LabelServiceName)
	case kinds.Secret:
		if out.fields == "" && out.labels == "" {
			// Helm releases are the largest Secrets and have no certificates.
			out.fields = "type!=helm.sh/release.v1"
		}
	}
	return out
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "," + b
}

func (f *feed) key(n name) kinds.Key {
	return kinds.Key{Kind: f.kind, Namespace: n.namespace, Name: n.name, Cluster: f.s.opts.Cluster}
}

// start begins to read. Only one goroutine may call start and stop.
func (f *feed) start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.done = make(chan struct{})
	f.loaded.Store(false)
	f.s.mu.Lock()
	f.running, f.synced = true, false
	f.s.mu.Unlock()
	done := f.done
	f.s.spawn(f.plural, func() {
		defer close(done)
		f.run(ctx)
	})
}

// stop stops reading a kind that was removed, and drops its objects.
func (f *feed) stop() {
	f.cancel()
	f.end(nil)
}

// end waits for the end of a canceled feed. next returns the feed, not started yet, that reads an object from now on.
// Such an object stays in force. Other objects are dropped. A nil next drops all.
func (f *feed) end(next func(name) *feed) {
	<-f.done
	for n, e := range f.entries {
		var to *feed
		if next != nil {
			to = next(n)
		}
		if to == nil {
			f.remove(n)
			continue
		}
		to.entries[n] = e
		f.s.mu.Lock()
		to.present[n] = struct{}{}
		f.s.mu.Unlock()
	}
	f.s.mu.Lock()
	f.running, f.absentSince = false, time.Time{}
	f.recovered()
	f.s.mu.Unlock()
	f.s.wake()
}

// absentDelay is how long the first load waits for a kind that is defined and that discovery does not have.
const absentDelay = 30 * time.Second

// missing records that no version of the kind is served, and reports whether discovery confirms it.
func (f *feed) missing(ctx context.Context) bool {
	f.s.mu.Lock()
	if f.absentSince.IsZero() {
		f.absentSince = time.Now()
	}
	defined, synced := f.s.definitions != nil && !f.s.definitions.unreadable(), f.synced
	f.s.mu.Unlock()
	gone, err := f.confirmAbsent(ctx, defined)
	if err == nil && !gone && synced { // before, it is doubtful
		err = errNotFound
	}
	if err != nil && ctx.Err() == nil {
		f.failed(err)
	}
	f.s.mu.Lock()
	if err == nil {
		f.recovered() // an earlier error is over
	}
	f.gone = gone
	f.s.mu.Unlock()
	f.s.wake()
	return gone
}

// doubtful reports whether the API server answers 404 to lists of a kind that probably exists and that has not been
// read. The caller holds s.mu.
func (f *feed) doubtful() bool { return f.running && !f.synced && f.absent() && !f.passedOver() }

// passedOver reports whether the first load continues without the kind, because discovery does not have it. If
// definitions can be read, the kind has one, and discovery only lacks the versions that are read. Then the first load
// waits for a while, and forever for kinds of Istio, whose definitions have such versions. The caller holds s.mu.
func (f *feed) passedOver() bool {
	return f.absent() && f.gone && (f.s.definitions.unreadable() || !f.kind.Istio && f.absentFor() > absentDelay)
}

// settled reports whether the first load need not wait for the feed. A core kind is never absent, nor is a kind whose
// definition exists. The caller holds s.mu.
func (f *feed) settled() bool {
	if !f.running {
		return f.core == nil
	}
	// The kubeconfig of a remote cluster may not permit reading such kinds, or wanted objects. The services of the
	// cluster are used without them.
	lesser := (f.core == nil || f.present != nil) && f.s.opts.Cluster != "" && apierrors.IsForbidden(f.readError)
	return f.synced || lesser || f.passedOver()
}

// Add handles an object, new or changed.
func (f *feed) Add(obj any) error {
	f.apply(obj.(*item))
	f.s.wake()
	return nil
}

// Update handles a changed object.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Delete handles a deleted object.
func (f *feed) Delete(obj any) error {
	f.remove(obj.(*item).name)
	f.s.wake()
	return nil
}

// Replace handles a list of all objects.
func (f *feed) Replace(list []any, _ string) error {
	if len(f.entries) == 0 { // the first load
		f.entries = make(map[name]entry, len(list))
		f.s.expect(len(list))
	} else {
		there := make(map[name]struct{}, len(list))
		for _, obj := range list {
			there[obj.(*item).name] = struct{}{}
		}
		for n := range f.entries {
			if _, ok := there[n]; !ok {
				f.remove(n)
			}
		}
	}
	for i, obj := range list {
		f.apply(obj.(*item))
		list[i] = nil
	}
	f.decoding.Lock()
	f.intern, f.masked = newInterner(), nil // later objects are few, and have little in common
	f.decoding.Unlock()
	f.loaded.Store(true)
	f.s.mu.Lock()
	f.synced = true
	f.s.mu.Unlock()
	f.s.wake()
	return nil
}

// Resync is a no-op: this store never drops events.
func (f *feed) Resync() error { return nil }

var _ cache.ReflectorStore = (*feed)(nil)

// apply puts a version of an object in force if it is usable and differs.
func (f *feed) apply(it *item) {
	old, existed := f.entries[it.name]
	if existed && it.fingerprint != 0 && it.fingerprint == old.fingerprint {
		return
	}
	key := f.key(it.name)
	if f.core != nil {
		object, err := f.object(it)
		if err != nil {
			// API servers do not send such objects. The previous version stays in force.
			wrong := config.Unusable(key.String(), "the object cannot be used: "+err.Error())
			f.note(key, transition{}, judgement{findings: []diag.Diagnostic{wrong}}, transition{})
			return
		}
		f.entries[it.name] = entry{fingerprint: it.fingerprint}
		f.wrote(config.Write{Key: key, Manager: it.manager, Time: it.managed})
		f.note(key, transition{existed: existed, now: object}, judgement{}, transition{})
		return
	}
	doc, last, next := f.judge(it), old.last(), &versions{uid: it.uid}
	if last.uid != it.uid {
		last.Good = nil
	}
	var force validation.InForce
	next.Versions, force = last.After(doc, func(o *kinds.Object) {
		o.Cluster = f.s.opts.Cluster
		o.Generation = cmp.Or(o.Generation, it.generation)
	})
	if force.Why != "" {
		doc.Findings = append(doc.Findings, config.Unusable(key.String(), force.Why))
	}
	f.entries[it.name] = entry{it.fingerprint, next}
	if f.s.opts.Writes != nil && f.loaded.Load() {
		w := config.Write{Key: key, Generation: it.generation}
		w.Manager, w.Time = managerOf(it.data)
		f.wrote(w)
	}
	f.note(
		key, transition{last.Object != nil, last.Object, next.Object}, judgement{it.generation, doc.Findings},
		transition{last.Beside != nil, last.Beside, next.Beside},
	)
}

// wrote passes on who wrote a version. The first load has no such versions.
func (f *feed) wrote(w config.Write) {
	if f.s.opts.Writes != nil && f.loaded.Load() {
		f.s.opts.Writes.Wrote(w)
	}
}

// note records a change of an object and its findings, and a change of the last good version beside it.
func (f *feed) note(key kinds.Key, t transition, judged judgement, beside transition) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if beside.was != beside.now {
		of := key
		of.Name += kinds.LastGood
		f.s.changed(of, beside.existed, beside.was, beside.now)
	}
	if t.was != t.now {
		f.s.changed(key, t.existed, t.was, t.now)
	}
	if f.present != nil && t.now != nil {
		f.present[name{key.Namespace, key.Name}] = struct{}{}
	}
	f.s.setFindings(key, judged)
}

func (f *feed) remove(n name) {
	e, ok := f.entries[n]
	if !ok {
		return
	}
	old := e.last()
	delete(f.entries, n)
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	delete(f.present, n)
	if key := f.key(n); f.core != nil || old.Object != nil {
		f.s.changed(key, true, old.Object, nil)
	}
	if old.Beside != nil {
		f.s.changed(old.Beside.Key, true, old.Beside, nil)
	}
	f.s.setFindings(f.key(n), judgement{})
}
