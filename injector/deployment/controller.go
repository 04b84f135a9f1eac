package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/injector"
)

// ConfigMaps reads ConfigMaps: those with defaults of classes, and single ones that are wanted.
type ConfigMaps interface {
	Run(ctx context.Context) error
	Want(objects []kinds.Key)
	Missing() []kinds.Key // of those that are wanted
	Findings() []diag.Diagnostic
}

// DefaultsLabel names, on a ConfigMap of the system namespace, the class for whose Gateways it has the defaults.
const DefaultsLabel = names.LabelDefaultsForClass

// Options of a Controller.
type Options struct {
	Client        dynamic.Interface // it refuses writes of those that do not lead
	Namespace     string            // the system namespace
	Revision      string            // empty: default
	Cluster       string            // ID
	Deploy        bool              // what Gateways need
	Classes       []Class           // that are known also where they are missing
	CreateClasses bool              // where they are missing

	Objects func(*kinds.Kind) []*kinds.Object      // of a kind, those that count
	Object  func(kinds.Key) *kinds.Object          // one that counts, or nil
	Version func(ctx context.Context) (int, error) // of the API server: 137 is 1.37
	Render  func(ctx context.Context, template string, g injector.Gateway) ([]map[string]any, error)
	// ConfigMaps makes the source of ConfigMaps, which hands what it reads to the function.
	ConfigMaps func(handler func([]kinds.Change)) (ConfigMaps, error)
	Logger     *slog.Logger
}

// ControllerName is what GatewayClasses name whose Gateways are deployed, and the manager of the fields of objects.
const ControllerName = names.GatewayController

// Controller keeps what Gateways need. Notice, Wake and Findings may be called from any goroutine.
type Controller struct {
	o    Options
	wake chan struct{} // has one message at most

	mu       sync.Mutex
	all      bool               // every Gateway is looked at
	dirty    map[kinds.Key]bool // the Gateways that are looked at
	owners   map[types.UID]bool // likewise, by UID
	classes  bool               // GatewayClasses are looked at
	objects  map[ref]have
	tags     map[string]string // by the object's name
	synced   map[schema.GroupVersionResource]bool
	troubles map[schema.GroupVersionResource]string // why they cannot be read
	source   ConfigMaps                             // nil: none runs
	maps     map[kinds.Key]*corev1.ConfigMap
	defaults map[kinds.Key]string // the class that a ConfigMap has the defaults of
	failed   map[kinds.Key]string // why a Gateway, or class, is not as it should be

	// The fields below are owned by the Run goroutine.
	applied      map[ref]applied
	retries      map[kinds.Key]retry
	version      int   // of the API server; 0 if it is not known
	versionRetry retry // the next request for the version, after a failed one
}

// retry is when something that failed is tried again, and how long after the failure that is.
type retry struct {
	at    time.Time
	pause time.Duration
}

// next returns when to try again after one more failure: the pause is doubled each time.
func (r retry) next() retry {
	pause := min(max(leastPause, 2*r.pause), look)
	return retry{time.Now().Add(pause), pause}
}

// Times of the loop.
const (
	leastPause = time.Second      // between two writes of one object
	mostPause  = 30 * time.Second // the same, while somebody undoes the writes
	calm       = time.Minute      // without a write after which the pause is the least again
	longest    = 10 * time.Second // that a write takes
	look       = 30 * time.Second // between two looks at what failed, at most
)

// New returns a Controller that does nothing yet.
func New(o Options) *Controller {
	o.Revision = cmp.Or(o.Revision, "default")
	c := &Controller{o: o, wake: make(chan struct{}, 1)}
	c.reset()
	return c
}

func (c *Controller) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.classes, c.dirty, c.owners = true, true, map[kinds.Key]bool{}, map[types.UID]bool{}
	c.objects, c.tags, c.synced, c.troubles = map[ref]have{}, map[string]string{}, map[schema.GroupVersionResource]bool{}, map[schema.GroupVersionResource]string{}
	c.source, c.maps, c.defaults, c.failed = nil, map[kinds.Key]*corev1.ConfigMap{}, map[kinds.Key]string{}, map[kinds.Key]string{}
	c.applied, c.retries, c.version, c.versionRetry = map[ref]applied{}, map[kinds.Key]retry{}, 0, retry{}
}

// Wake has the Controller look at what was noticed.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Refresh has every Gateway looked at, as when templates or the mesh configuration are others.
func (c *Controller) Refresh() {
	c.mu.Lock()
	c.all = true
	c.mu.Unlock()
	c.Wake()
}

// Notice takes changes that were committed.
func (c *Controller) Notice(batch []kinds.Change) {
	concerns := false
	c.mu.Lock()
	for _, change := range batch {
		if change.Cluster != "" {
			continue
		}
		switch change.Kind {
		case kinds.KubeGateway:
			c.dirty[change.Key] = true
		case kinds.GatewayClass:
			c.all, c.classes = true, true
		case kinds.ListenerSet, kinds.Namespace, kinds.ProxyConfig, kinds.ConfigMap: // the mesh configuration is one
			c.all = true
		default:
			continue
		}
		concerns = true
	}
	c.mu.Unlock()
	if concerns {
		c.Wake()
	}
}

// dirtyOwner has the Gateway of a UID looked at; empty: all. The caller holds the lock.
func (c *Controller) dirtyOwner(uid types.UID) {
	if uid == "" {
		c.all = true
	} else {
		c.owners[uid] = true
	}
}

// Run keeps classes and Gateways as they should be until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.reset()
	defer c.reset()
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	started := false
	for {
		if !started && c.o.Deploy && slices.ContainsFunc(c.o.Objects(kinds.KubeGateway), c.o.classed) {
			started = c.follow(ctx, &following)
		}
		pause := c.step(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// follow starts the watches, and reports whether it could.
func (c *Controller) follow(ctx context.Context, following *sync.WaitGroup) bool {
	source, err := c.o.ConfigMaps(c.take)
	if err != nil {
		c.o.Logger.Error("ConfigMaps with parameters of Gateways cannot be read", "err", err)
		return false
	}
	c.mu.Lock()
	c.source = source
	c.mu.Unlock()
	start := func(name string, fn func()) {
		following.Add(1)
		safe.Go(c.o.Logger, name, func() {
			defer following.Done()
			fn()
		})
	}
	start("parameters of Gateways", func() {
		if err := source.Run(ctx); err != nil {
			c.o.Logger.Error("ConfigMaps with parameters of Gateways are not read any more", "err", err)
		}
	})
	for _, resource := range c.followed() {
		start(resource.Resource+" of Gateways", func() { c.watch(ctx, resource, c.selector(resource)) })
	}
	return true
}

func (c *Controller) followed() []schema.GroupVersionResource {
	list := []schema.GroupVersionResource{tags()}
	for _, r := range resources() {
		list = append(list, r.GroupVersionResource)
	}
	return list
}

// take notes what the source of ConfigMaps brings.
func (c *Controller) take(changes []kinds.Change) {
	c.mu.Lock()
	for _, change := range changes {
		delete(c.maps, change.Key)
		delete(c.defaults, change.Key)
		if change.Object == nil {
			continue
		}
		c.maps[change.Key] = change.Object.Spec.(*corev1.ConfigMap)
		if class := change.Object.Labels[DefaultsLabel]; class != "" && change.Namespace == c.o.Namespace {
			c.defaults[change.Key] = class
		}
	}
	c.synced[schema.GroupVersionResource{Resource: "parameters"}] = true
	c.all = true
	c.mu.Unlock()
	c.Wake()
}

// step does what is due, and returns how long to wait for the next.
func (c *Controller) step(ctx context.Context) time.Duration {
	next := look
	if c.o.CreateClasses {
		c.keepClasses(ctx)
	}
	if !c.o.Deploy {
		return next
	}
	gateways := c.o.Objects(kinds.KubeGateway)
	c.want(gateways)
	c.mu.Lock()
	ready := len(c.synced) == len(c.followed())+1
	c.mu.Unlock()
	if !ready {
		return next
	}
	if pause := c.findVersion(ctx); pause > 0 {
		return pause
	}
	c.mu.Lock()
	all, dirty, owners := c.all, c.dirty, c.owners
	c.all, c.dirty, c.owners = false, map[kinds.Key]bool{}, map[types.UID]bool{}
	c.mu.Unlock()
	there, sets := map[kinds.Key]bool{}, c.o.Objects(kinds.ListenerSet)
	for _, o := range gateways {
		there[o.Key] = true
		if due, waits := c.retries[o.Key]; waits && time.Now().After(due.at) {
			dirty[o.Key] = true
		}
		if all || dirty[o.Key] || owners[types.UID(o.UID)] {
			c.deploy(ctx, o, sets)
		}
		if due, waits := c.retries[o.Key]; waits {
			next = min(next, max(time.Until(due.at), time.Millisecond))
		}
	}
	c.forget(there)
	return next
}

// findVersion asks the API server for its version unless that is known. After a failure it backs off, and returns how
// long to wait until the next request.
func (c *Controller) findVersion(ctx context.Context) time.Duration {
	if c.version != 0 {
		return 0
	}
	if wait := time.Until(c.versionRetry.at); wait > 0 {
		return wait
	}
	var err error
	if c.version, err = c.o.Version(ctx); err != nil {
		c.versionRetry = c.versionRetry.next()
		c.o.Logger.Warn("failed to get the version of the API server", "err", err)
		return c.versionRetry.pause
	}
	return 0
}

// forget drops what is known of Gateways that are gone.
func (c *Controller) forget(there map[kinds.Key]bool) {
	maps.DeleteFunc(c.retries, func(k kinds.Key, _ retry) bool { return k.Kind == kinds.KubeGateway && !there[k] })
	maps.DeleteFunc(c.applied, func(_ ref, a applied) bool { return !there[a.gateway] })
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.failed, func(k kinds.Key, _ string) bool { return k.Kind == kinds.KubeGateway && !there[k] })
}

// want has the ConfigMaps read that Gateways name.
func (c *Controller) want(gateways []*kinds.Object) {
	c.mu.Lock()
	source := c.source
	c.mu.Unlock()
	if source == nil {
		return
	}
	var keys []kinds.Key
	for _, o := range gateways {
		if k, named, err := reference(o.Spec.(*gatewayv1.Gateway), o.Namespace); named && err == nil && c.o.classed(o) {
			keys = append(keys, k)
		}
	}
	source.Want(keys)
}

// deploy does what one Gateway needs.
func (c *Controller) deploy(ctx context.Context, o *kinds.Object, sets []*kinds.Object) {
	c.mu.Lock()
	tags := slices.Collect(maps.Values(c.tags))
	c.mu.Unlock()
	if !Deploys(c.o, o, tags...) {
		c.done(o.Key, 0, nil)
		return
	}
	wait, err := c.keepAll(ctx, o, sets)
	if ctx.Err() == nil {
		c.done(o.Key, wait, err)
	}
}

// keepAll writes what a Gateway needs. What cannot be written holds up nothing else. It returns how long to wait for
// what was written just now.
func (c *Controller) keepAll(ctx context.Context, o *kinds.Object, sets []*kinds.Object) (wait time.Duration, err error) {
	if o.UID == "" {
		return 0, errors.New("it is not in the API server, so nothing there can belong to it: name in spec.addresses the host of a Service that is there")
	}
	list, known, err := c.parameters(o)
	if err != nil || !known {
		return 0, err
	}
	objects, err := Make(ctx, Needs{
		Gateway: o, ListenerSets: sets, Namespace: c.o.labels, Parameters: list,
		Cluster: c.o.Cluster, Version: c.version, Render: c.o.Render,
	})
	if err != nil {
		return 0, err
	}
	wanted := map[ref]bool{}
	for _, u := range objects {
		r := resources()[slices.IndexFunc(resources(), func(r resource) bool { return is(u.Object, r) })]
		wanted[ref{r.GroupVersionResource, types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}}] = true
		later, e := c.keep(ctx, o.Key, r, u)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), e))
		}
		wait = max(wait, later)
	}
	return wait, errors.Join(err, c.remove(ctx, types.UID(o.UID), o.Namespace, wanted))
}

// parameters returns the parameters of a Gateway: those of its class, then its own. It returns false while they are not
// known.
func (c *Controller) parameters(o *kinds.Object) (list []Parameters, known bool, err error) {
	g := o.Spec.(*gatewayv1.Gateway)
	own, named, err := reference(g, o.Namespace)
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(c.defaults), func(a, b kinds.Key) int { return cmp.Compare(a.Name, b.Name) }) {
		if c.defaults[k] == string(g.Spec.GatewayClassName) {
			list = append(list, Parameters{k.String(), c.maps[k].Data})
			break // the first counts
		}
	}
	if !named {
		return list, true, nil
	}
	if m := c.maps[own]; m != nil {
		return append(list, Parameters{own.String(), m.Data}), true, nil
	}
	if slices.Contains(c.source.Missing(), own) {
		return nil, false, fmt.Errorf("spec.infrastructure.parametersRef: %s does not exist", own)
	}
	return nil, false, nil
}

// done notes how a Gateway is, and logs what is new.
func (c *Controller) done(k kinds.Key, wait time.Duration, err error) {
	var problem string
	switch {
	case err != nil:
		problem = err.Error()
		c.retries[k] = c.retries[k].next()
	case wait > 0:
		c.retries[k] = retry{time.Now().Add(wait), 0}
	default:
		delete(c.retries, k)
	}
	c.mu.Lock()
	last := c.failed[k]
	delete(c.failed, k)
	if problem != "" {
		c.failed[k] = problem
	}
	c.mu.Unlock()
	if problem != last && problem != "" {
		c.o.Logger.Warn("an object is not as it should be", "object", k.String(), "err", problem)
	}
}

// Findings returns what cannot be read or written at present.
func (c *Controller) Findings() []diag.Diagnostic {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []diag.Diagnostic
	if c.source != nil {
		list = append(list, c.source.Findings()...)
	}
	for resource, problem := range c.troubles {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "GatewayObjectsNotRead", Message: resource.Resource + " of Gateways cannot be read: " + problem,
			Fix: "grant get, list and watch of them to this server's ServiceAccount; it is tried again",
		})
	}
	for k, problem := range c.failed {
		code, fix := "GatewayNotDeployed", "correct what it names; it is tried again. Objects that are deployed stay as they were"
		if k.Kind == kinds.GatewayClass {
			code, fix = "GatewayClassNotCreated", "grant create of gatewayclasses to this server's ServiceAccount, or create it; it is tried again"
		}
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: code, Object: k.String(), Message: problem, Fix: fix})
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return list
}
