package crd

import (
	"context"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// definitions watches the names of CustomResourceDefinitions, and starts and stops the feeds of their kinds.
type definitions struct {
	watched
	s   *Source
	ctx context.Context // context of Run; set before the first event

	// Guarded by s.mu.
	synced    bool
	forbidden bool
}

func newDefinitions(s *Source) *definitions {
	d := &definitions{s: s}
	d.watched = watched{
		source: s, group: "apiextensions.k8s.io", plural: "customresourcedefinitions", versions: []string{"v1"}, item: readMetadata, store: d,
		protobuf: true, as: ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	}
	return d
}

func (d *definitions) run(ctx context.Context) {
	d.ctx = ctx
	d.onForbidden = d.readBlindly
	d.watched.run(ctx)
}

// decided reports whether the kinds to read are known. The caller holds s.mu.
func (d *definitions) decided() bool { return d.synced || d.forbidden }

// unreadable reports whether definitions cannot be listed. Then all kinds are polled. The caller holds s.mu.
func (d *definitions) unreadable() bool { return d.forbidden && !d.synced }

func (d *definitions) readBlindly() {
	d.s.mu.Lock()
	before := d.decided()
	d.forbidden = true
	d.s.mu.Unlock()
	if before {
		return
	}
	for _, f := range d.s.feeds {
		if f.core == nil {
			f.start(d.ctx)
		}
	}
	d.s.wake()
}

// set starts or stops the feeds of a definition.
func (d *definitions) set(definition string, there bool) {
	for _, f := range d.s.feeds {
		if f.core != nil || f.plural+"."+f.group != definition {
			continue
		}
		d.s.mu.Lock()
		running := f.running
		d.s.mu.Unlock()
		switch {
		case there && !running:
			f.start(d.ctx)
		case !there && running:
			f.stop()
			d.s.opts.Logger.Info("the definition of a kind is gone", "kind", f.kind.Name)
		}
	}
	d.s.wake()
}

// Add handles a definition, new or changed.
func (d *definitions) Add(obj any) error {
	d.set(obj.(*item).name.name, true)
	return nil
}

// Update handles a changed definition.
func (d *definitions) Update(obj any) error { return d.Add(obj) }

// Delete handles a deleted definition, with which all objects of its kind are deleted.
func (d *definitions) Delete(obj any) error {
	d.set(obj.(*item).name.name, false)
	return nil
}

// Replace handles a list of all definitions.
func (d *definitions) Replace(list []any, _ string) error {
	there := lists.SetOf(list, func(obj any) string { return obj.(*item).name.name })
	for _, f := range d.s.feeds {
		definition := f.plural + "." + f.group
		d.set(definition, there[definition])
	}
	d.s.mu.Lock()
	d.synced, d.forbidden = true, false
	d.s.mu.Unlock()
	d.s.wake()
	return nil
}

// Resync is a no-op: this store never drops events.
func (d *definitions) Resync() error { return nil }
