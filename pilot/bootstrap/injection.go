package bootstrap

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// Injection are the options of the injector.
type Injection struct {
	Off bool
	// Dir has the texts in the files config and values. Where they are not there, the ConfigMap istio-sidecar-injector,
	// of the configuration or else of the cluster, has them.
	Dir       string
	Functions injector.Functions // of templates
	// NativeSidecars has proxies be init containers that go on running, where a pod does not say: true, false, or auto,
	// which is true where every node of the cluster can.
	NativeSidecars   string
	CompliancePolicy string
}

// Where the templates come from, the first that there is counts.
const (
	fromFiles = iota
	fromDirectory
	fromCluster
	places
)

// injection is the injector and what feeds it.
type injection struct {
	server   *Server
	injector *injector.Injector
	source   *crd.Source   // nil without a cluster
	read     chan struct{} // closed when the cluster's ConfigMap has been read
	looked   chan struct{} // closed when the files have been read for the first time
	changed  chan struct{} // has one message at most: the templates, or what is wrong with them, may have changed

	mu       sync.Mutex
	texts    [places]*placed
	old      map[string]bool   // nodes that cannot run native sidecars
	findings []diag.Diagnostic // about the texts
	// about files that cannot be read; nil while they can, or are not there
	unreadable []diag.Diagnostic
}

// placed is a version of the texts.
type placed struct {
	texts    injector.Texts
	object   string // what has them
	position string // of the object, where it is in a file
}

// newInjection makes the injector. It has no templates yet.
func (s *Server) newInjection() (*injection, error) {
	o := s.o.Injection
	x := &injection{server: s, read: make(chan struct{}), looked: make(chan struct{}), changed: make(chan struct{}, 1), old: map[string]bool{}}
	x.injector = injector.New(injector.Options{
		Revision: s.o.Revision, Mesh: s.world.Mesh, ProxyConfigs: s.proxyConfigs, NativeSidecars: x.native, CompliancePolicy: o.CompliancePolicy,
		Logger: s.o.Logger.With("scope", "injection"),
	})
	if s.o.Client == nil {
		close(x.read)
		return x, nil
	}
	var first sync.Once
	var err error
	x.source, err = crd.New(crd.Options{
		Client: s.o.Client, Kinds: []*kinds.Kind{kinds.ConfigMap}, Logger: s.o.Logger.With("scope", "kube"), Metrics: s.metrics, Limits: s.o.Limits,
		Only: map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: s.o.Namespace, Names: []string{injector.MapName(s.o.Revision)}}},
		Handler: func(changes []kinds.Change) {
			x.take(fromCluster, changes)
			first.Do(func() { close(x.read) })
		},
	})
	return x, err
}

// proxyConfigs returns the ProxyConfigs that apply to a pod, as Snapshot.ProxyConfigs does.
func (s *Server) proxyConfigs(namespace string, labels map[string]string) (whole []*networkingv1beta1.ProxyConfig, selecting *networkingv1beta1.ProxyConfig) {
	if snap := s.world.Snapshot(); snap != nil {
		return snap.ProxyConfigs(namespace, labels)
	}
	return nil, nil
}

// register lists what feeds the injector, in the order of starting.
func (x *injection) register(c *components) {
	c.background("files with injection templates", x.follow)
	if x.source != nil {
		c.background("injection templates", x.source.Run)
	}
	c.start("injection templates", x.wait)
}

// wait returns when it is known which templates there are, and that they can be used.
func (x *injection) wait(ctx context.Context) error {
	for _, known := range []chan struct{}{x.looked, x.read} {
		select {
		case <-known:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for x.lacks() != "" {
		select {
		case <-x.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lacks says which templates the server waits for, because they are there and no version of them can be used. It
// returns an empty string if there are none.
func (x *injection) lacks() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch at := x.inForce(); {
	case len(x.unreadable) > 0 && x.texts[fromFiles] == nil:
		return "injection templates that can be read: " + x.unreadable[0].Message
	case at >= 0 && x.injector.Config() == nil:
		return "injection templates that can be used: the ones in " + x.texts[at].object + " have errors"
	}
	return ""
}

// inForce returns the place whose templates are in force, or -1 if there are none. The caller holds mu.
func (x *injection) inForce() int {
	return slices.IndexFunc(x.texts[:], func(p *placed) bool { return p != nil })
}

// follow reads the files, and again when they may have changed, until ctx ends.
func (x *injection) follow(ctx context.Context) error {
	o := watchfile.Options{Poll: x.server.o.Poll, NoWatch: x.server.o.NoWatch, Logger: x.server.o.Logger.With("scope", "injection")}
	if dir := x.server.o.Injection.Dir; dir != "" {
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

// readFiles takes the files in, if they are there. Files that vanish or cannot be read keep their last content.
func (x *injection) readFiles() {
	dir := x.server.o.Injection.Dir
	if dir == "" {
		return
	}
	path := filepath.Join(dir, injector.ConfigKey)
	_, missing := os.Lstat(path)
	config, err := safe.ReadBounded(path, x.server.o.Limits.MeshConfig)
	var values []byte
	if err == nil {
		values, err = safe.ReadBounded(filepath.Join(dir, injector.ValuesKey), x.server.o.Limits.MeshConfig)
	}
	var unreadable []diag.Diagnostic
	switch {
	case err == nil:
		x.put(fromFiles, &placed{texts: injector.Texts{Config: string(config), Values: string(values)}, object: "injection templates in " + dir})
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

// wake makes wait look again.
func (x *injection) wake() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// Committed takes the changes of a commit.
func (x *injection) Committed(batch []kinds.Change) { x.take(fromDirectory, batch) }

// take looks through changes for the ConfigMap.
func (x *injection) take(from int, changes []kinds.Change) {
	key := kinds.Key{Kind: kinds.ConfigMap, Namespace: x.server.o.Namespace, Name: injector.MapName(x.server.o.Revision)}
	for _, c := range changes {
		if c.Kind == kinds.Node && c.Cluster == "" {
			x.takeNode(c)
		}
		if c.Key != key {
			continue
		}
		if c.Object == nil {
			x.put(from, nil)
			continue
		}
		data := c.Object.Spec.(*corev1.ConfigMap).Data
		x.put(from, &placed{injector.Texts{Config: data[injector.ConfigKey], Values: data[injector.ValuesKey]}, c.Object.String(), c.Object.Position})
	}
}

// takeNode notices whether a node can run native sidecars: its kubelet is of Kubernetes 1.33 or later.
func (x *injection) takeNode(c kinds.Change) {
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

// native reports whether proxies are init containers.
func (x *injection) native() bool {
	if o := x.server.o.Injection.NativeSidecars; o != "auto" {
		return o == "true"
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.old) == 0
}

// put takes in what a place has, nil if it has nothing any more, and puts in force what counts then.
func (x *injection) put(from int, p *placed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if was := x.texts[from]; p == was || p != nil && was != nil && *p == *was {
		return
	}
	defer x.wake()
	x.texts[from] = p
	at := x.inForce()
	if at < 0 {
		x.report(&x.findings, []diag.Diagnostic{{Severity: diag.Warning, Code: "Deleted", Object: "ConfigMap " + x.server.o.Namespace + "/" + injector.MapName(x.server.o.Revision), Message: "it was deleted; its last version stays in force until a restart"}})
		return
	}
	p = x.texts[at]
	c, findings := injector.Parse(p.object, p.texts, x.server.o.Injection.Functions)
	for i := range findings {
		findings[i] = findings[i].At(p.position)
	}
	x.report(&x.findings, findings)
	if c == nil {
		return
	}
	x.injector.Set(c)
	if g := x.server.gateways; g != nil {
		g.gateways.NotifyAll()
	}
	x.server.o.Logger.Info("injection templates in force", "from", p.object, "templates", len(c.Templates()))
}

// report sets a list of findings, and logs those that are new. The caller holds the lock.
func (x *injection) report(of *[]diag.Diagnostic, list []diag.Diagnostic) {
	for _, d := range list {
		if !slices.Contains(*of, d) {
			x.server.o.Logger.Warn("finding", "finding", d.String())
		}
	}
	*of = list
}

// Findings returns what is wrong with the templates, and with reading them.
func (x *injection) Findings() []diag.Diagnostic {
	x.mu.Lock()
	list := slices.Concat(x.findings, x.unreadable)
	x.mu.Unlock()
	if x.source != nil {
		list = append(list, x.source.Findings()...)
	}
	return list
}

// templates returns the templates of injection by name.
func (s *Server) templates() map[string]string {
	if s.injection == nil {
		return map[string]string{}
	}
	if c := s.injection.injector.Config(); c != nil {
		return c.TemplateTexts()
	}
	return map[string]string{}
}
