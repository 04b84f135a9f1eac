package templates

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/injector"
)

// Place is a source of templates. The first place that has templates is in force.
type Place int

// Places, by precedence.
const (
	Files Place = iota
	Configuration
	Cluster
	places
)

// Options of Templates.
type Options struct {
	Injector  injector.Options   // NativeSidecars is set by New
	Functions injector.Functions // functions of templates
	Namespace string             // namespace of the ConfigMap
	// Dir is a folder with the files config and values. Optional.
	Dir string
	// NativeSidecars says whether proxies are native sidecars if a pod does not say: true, false, or auto, which is
	// true if every node of the cluster can run them.
	NativeSidecars string
	Cluster        bool          // Wait waits for the ConfigMap of the cluster
	Limit          int64         // maximum size of a file in bytes
	Poll           time.Duration // see watchfile.Options
	NoWatch        bool
	InForce        func() // called when other templates come into force
}

// Templates decides which templates are in force. It may be used by any goroutine.
type Templates struct {
	Injector *injector.Injector

	o       Options
	key     kinds.Key
	read    chan struct{} // closed when the cluster's ConfigMap has been read
	looked  chan struct{} // closed when the files have been read for the first time
	changed chan struct{} // signals a change of the templates or their faults; holds at most one message
	first   sync.Once     // closes read

	mu         sync.Mutex
	texts      [places]*placed
	old        map[string]bool   // nodes that cannot run native sidecars
	findings   []diag.Diagnostic // findings about the texts
	unreadable []diag.Diagnostic // findings about files that cannot be read
}

// placed is a version of the texts in a place.
type placed struct {
	texts    injector.Texts
	object   string // name of the object that has them
	position string // position of the object in a file; empty otherwise
}

// New returns Templates that has none yet.
func New(o Options) *Templates {
	x := &Templates{
		o: o, key: kinds.Key{Kind: kinds.ConfigMap, Namespace: o.Namespace, Name: injector.MapName(o.Injector.Revision)},
		read: make(chan struct{}), looked: make(chan struct{}), changed: make(chan struct{}, 1), old: map[string]bool{},
	}
	o.Injector.NativeSidecars = x.native
	x.Injector = injector.New(o.Injector)
	if !o.Cluster {
		close(x.read)
	}
	return x
}

// FromCluster handles changes of the cluster's ConfigMaps and nodes.
func (x *Templates) FromCluster(changes []kinds.Change) {
	x.take(Cluster, changes)
	x.first.Do(func() { close(x.read) })
}

// Wait blocks until it is known which templates there are and that they can be used.
func (x *Templates) Wait(ctx context.Context) error {
	for _, known := range []chan struct{}{x.looked, x.read} {
		select {
		case <-known:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for x.Lacks() != "" {
		select {
		case <-x.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Lacks names the templates that the server waits for: they exist and no version of them can be used. It returns "" if
// there are none.
func (x *Templates) Lacks() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch at := x.inForce(); {
	case len(x.unreadable) > 0 && x.texts[Files] == nil:
		return "injection templates that can be read: " + x.unreadable[0].Message
	case at >= 0 && x.Injector.Config() == nil:
		return "injection templates that can be used: the ones in " + x.texts[at].object + " have errors"
	}
	return ""
}

// inForce returns the place whose templates are in force, or -1 if there are none. The caller holds mu.
func (x *Templates) inForce() Place {
	return Place(slices.IndexFunc(x.texts[:], func(p *placed) bool { return p != nil }))
}

// Run reads the files, and reads them again after changes, until ctx ends.
func (x *Templates) Run(ctx context.Context) error {
	o := watchfile.Options{Poll: x.o.Poll, NoWatch: x.o.NoWatch, Logger: x.o.Injector.Logger}
	if dir := x.o.Dir; dir != "" {
		o.Paths = []string{filepath.Join(dir, injector.ConfigKey), filepath.Join(dir, injector.ValuesKey)}
	}
	w := watchfile.New(o)
	defer w.Close()
	x.readFiles()
	close(x.looked)
	for w.Next(ctx, 0) {
		x.readFiles()
	}
	return nil
}

// readFiles reads the files, if they exist. Files that vanish or cannot be read keep their last content.
func (x *Templates) readFiles() {
	dir := x.o.Dir
	if dir == "" {
		return
	}
	path := filepath.Join(dir, injector.ConfigKey)
	_, missing := os.Lstat(path)
	config, err := safe.ReadBounded(path, x.o.Limit)
	var values []byte
	if err == nil {
		values, err = safe.ReadBounded(filepath.Join(dir, injector.ValuesKey), x.o.Limit)
	}
	var unreadable []diag.Diagnostic
	switch {
	case err == nil:
		x.put(Files, &placed{texts: injector.Texts{Config: string(config), Values: string(values)}, object: "injection templates in " + dir})
	case errors.Is(missing, fs.ErrNotExist):
	default:
		unreadable = []diag.Diagnostic{{
			Severity: diag.Error, Code: "Unreadable", Object: "injection templates in " + dir, Message: err.Error(),
			Fix: "make the files config and values readable; until then their last content stays in force, and a server that starts is not ready " +
				"without them",
		}}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report(&x.unreadable, unreadable)
	x.wake()
}

// wake makes Wait check again.
func (x *Templates) wake() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// Committed handles the changes of a commit.
func (x *Templates) Committed(batch []kinds.Change) { x.take(Configuration, batch) }

// take handles changes of the ConfigMap and of nodes.
func (x *Templates) take(from Place, changes []kinds.Change) {
	for _, c := range changes {
		if c.Kind == kinds.Node && c.Cluster == "" {
			x.takeNode(c)
		}
		if c.Key != x.key {
			continue
		}
		if c.Object == nil {
			x.put(from, nil)
			continue
		}
		data := c.Object.Spec.(*corev1.ConfigMap).Data
		x.put(from,
			&placed{injector.Texts{Config: data[injector.ConfigKey], Values: data[injector.ValuesKey]}, c.Object.String(), c.Object.Position})
	}
}

// takeNode records whether a node can run native sidecars: its kubelet has version 1.33 or later.
func (x *Templates) takeNode(c kinds.Change) {
	old := false
	if c.Object != nil {
		v, err := version.ParseGeneric(c.Object.Spec.(*corev1.Node).Status.NodeInfo.KubeletVersion)
		old = err == nil && v.LessThan(version.MajorMinor(1, 33))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old {
		x.old[c.Name] = true
	} else {
		delete(x.old, c.Name)
	}
}

// native reports whether proxies are native sidecars by default.
func (x *Templates) native() bool {
	if o := x.o.NativeSidecars; o != "auto" {
		return o == "true"
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.old) == 0
}

// put sets the templates of a place, or removes them if p is nil, and decides which templates are in force.
func (x *Templates) put(from Place, p *placed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if was := x.texts[from]; p == was || p != nil && was != nil && *p == *was {
		return
	}
	defer x.wake()
	x.texts[from] = p
	at := x.inForce()
	if at < 0 {
		x.report(&x.findings, []diag.Diagnostic{{
			Severity: diag.Warning, Code: "Deleted", Object: x.key.String(),
			Message: "it was deleted; its last version stays in force until a restart", Fix: "create it again",
		}})
		return
	}
	p = x.texts[at]
	c, findings := injector.Parse(p.object, p.texts, x.o.Functions)
	for i := range findings {
		findings[i] = findings[i].At(p.position)
	}
	x.report(&x.findings, findings)
	if c == nil {
		return
	}
	x.Injector.Set(c)
	x.o.InForce()
	x.o.Injector.Logger.Info("injection templates in force", "from", p.object, "templates", len(c.Templates()))
}

// report replaces a list of findings, and logs the new ones. The caller holds mu.
func (x *Templates) report(of *[]diag.Diagnostic, list []diag.Diagnostic) {
	for _, d := range list {
		if !slices.Contains(*of, d) {
			x.o.Injector.Logger.Warn("finding", "finding", d.String())
		}
	}
	*of = list
}

// Findings returns the findings about the templates and about reading them.
func (x *Templates) Findings() []diag.Diagnostic {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Concat(x.findings, x.unreadable)
}
