package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Reconciler reconciles the objects of Gateways. A request names a Gateway.
type Reconciler struct {
	o       Options
	client  client.Client
	watched client.Reader

	// The fields below are owned by the goroutine that reconciles.
	sets         []*kinds.Object                          // all ListenerSets; nil until they are read
	applied      map[types.NamespacedName]map[ref]applied // last writes, by Gateway
	named        map[types.NamespacedName]kinds.Key       // ConfigMap that each Gateway names
	version      int                                      // API server's version, 137 for 1.37; 0 while it is unknown
	versionError error                                    // error of the last request for version
	backoff      *flowcontrol.Backoff                     // of requests for version

	mu       sync.Mutex
	source   ConfigMaps                      // source of the current term; nil before Start
	maps     map[kinds.Key]*corev1.ConfigMap // nil until the source has read all of them
	defaults map[kinds.Key]string            // class of the Gateways that a ConfigMap has defaults for
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	o.Revision = cmp.Or(o.Revision, "default")
	return &Reconciler{o: o}
}

// tags returns the kind of the objects that define tags of revisions. Other objects of the kind are not tags.
func tags() *kinds.Kind {
	return &kinds.Kind{Name: "MutatingWebhookConfiguration", Group: "admissionregistration.k8s.io",
		Versions: []string{"v1"}, Plural: "mutatingwebhookconfigurations", Cluster: true}
}

// Kinds returns the kinds that are read or written.
func (r *Reconciler) Kinds() []*kinds.Kind {
	list := []*kinds.Kind{tags()}
	for _, k := range resources() {
		list = append(list, k.Kind)
	}
	return list
}

// Watches returns the objects with this controller's label, and the tags of the revision.
func (r *Reconciler) Watches() map[client.Object]cache.ByObject {
	managed := labels.SelectorFromSet(labels.Set{names.LabelManaged: managedValue()})
	all := map[client.Object]cache.ByObject{}
	for _, k := range resources() {
		all[object(k.Kind)] = cache.ByObject{Label: managed, Transform: reduce}
	}
	tagged, err := labels.Parse(names.LabelTag + "," + names.LabelRevision + "=" + r.o.Revision)
	if err != nil {
		panic(err) // unreachable: a revision is a valid label value
	}
	all[object(tags())] = cache.ByObject{Label: tagged, Transform: reduce}
	return all
}

// Requests returns the Gateway that owns an object. A tag, or an object without an owner, stands for all Gateways.
func (r *Reconciler) Requests(_ context.Context, o client.Object) []reconcile.Request {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Gateway" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
		}
	}
	return r.gateways()
}

// gateways returns the Gateways of deployed classes.
func (r *Reconciler) gateways() (list []reconcile.Request) {
	for _, o := range r.o.World.ObjectsOf(kinds.KubeGateway) {
		if r.o.classed(o) {
			list = append(list, request(o.Key))
		}
	}
	return list
}

// Needed reports whether there is a Gateway of a deployed class.
func (r *Reconciler) Needed() bool { return len(r.gateways()) > 0 }

// All returns the Gateways of deployed classes. It reads the ListenerSets again.
func (r *Reconciler) All() []reconcile.Request {
	r.sets = nil
	return r.gateways()
}

func request(k kinds.Key) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}}
}

func key(request reconcile.Request) kinds.Key {
	return kinds.Key{Kind: kinds.KubeGateway, Namespace: request.Namespace, Name: request.Name}
}

// Affected returns the Gateways that committed changes concern. If all is true, they concern all Gateways.
func Affected(batch []kinds.Change) (list []reconcile.Request, all bool) {
	for _, change := range batch {
		if change.Cluster != "" {
			continue
		}
		switch change.Kind {
		case kinds.KubeGateway:
			list = append(list, request(change.Key))
		case kinds.GatewayClass, kinds.ListenerSet, kinds.Namespace, kinds.ProxyConfig, kinds.ConfigMap: // mesh configuration
			all = true
		}
	}
	return list, all
}

// Begin begins a term.
func (r *Reconciler) Begin(c client.Client, watched client.Reader) {
	r.client, r.watched, r.sets, r.version, r.versionError = c, watched, nil, 0, nil
	r.applied, r.named = map[types.NamespacedName]map[ref]applied{}, map[types.NamespacedName]kinds.Key{}
	r.backoff = flowcontrol.NewBackOff(limits.MinBackoff, limits.MaxBackoff)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source, r.maps, r.defaults = nil, nil, map[kinds.Key]string{}
}

// Start runs the source of ConfigMaps with parameters until ctx ends with the term.
func (r *Reconciler) Start(ctx context.Context) error {
	source, err := r.o.Maps.ConfigMaps(r.take)
	if err != nil {
		return fmt.Errorf("failed to read ConfigMaps with parameters of Gateways: %w", err)
	}
	r.set(source)
	defer r.set(nil)
	return source.Run(ctx)
}

func (r *Reconciler) set(source ConfigMaps) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
}

// take handles changes of ConfigMaps.
func (r *Reconciler) take(changes []kinds.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maps == nil {
		r.maps = map[kinds.Key]*corev1.ConfigMap{}
	}
	for _, change := range changes {
		delete(r.maps, change.Key)
		delete(r.defaults, change.Key)
		if change.Object == nil {
			continue
		}
		r.maps[change.Key] = change.Object.Spec.(*corev1.ConfigMap)
		if class := change.Object.Labels[DefaultsLabel]; class != "" && change.Namespace == r.o.Namespace {
			r.defaults[change.Key] = class
		}
	}
}

// Reconcile writes the objects of a Gateway. A Gateway that was deleted or is no longer deployed is not changed: its
// objects are deleted with their owner.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o := r.o.World.Object(key(request))
	deploys, err := r.deploys(ctx, o)
	if err != nil || !deploys {
		r.forget(request.NamespacedName)
		return reconcile.Result{}, err
	}
	if o.UID == "" {
		return reconcile.Result{},
			errors.New("it is not in the API server, so nothing there can belong to it: name in spec.addresses the host of a Service that is there")
	}
	list, known, err := r.parameters(o)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !known { // no event tells that a ConfigMap does not exist
		return reconcile.Result{RequeueAfter: limits.MinBackoff}, nil
	}
	if err := r.findVersion(ctx); err != nil {
		return reconcile.Result{RequeueAfter: r.backoff.Get("")}, err
	}
	if r.sets == nil {
		r.sets = append([]*kinds.Object{}, r.o.World.ObjectsOf(kinds.ListenerSet)...)
	}
	objects, err := Make(ctx, Needs{
		Gateway: o, ListenerSets: r.sets, World: r.o.World, Parameters: list,
		Cluster: r.o.Cluster, Version: r.version, Templates: r.o.Templates,
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.keep(ctx, o, objects)
}

// deploys reports whether a Gateway, which may be nil, gets objects.
func (r *Reconciler) deploys(ctx context.Context, o *kinds.Object) (bool, error) {
	if o == nil {
		return false, nil
	}
	all := listOf(tags())
	if err := r.watched.List(ctx, all); err != nil {
		return false, err
	}
	var tagged []string
	for i := range all.Items {
		tagged = append(tagged, all.Items[i].GetLabels()[names.LabelTag])
	}
	return Deploys(r.o, o, tagged...), nil
}

// forget drops the state of a Gateway.
func (r *Reconciler) forget(gateway types.NamespacedName) {
	delete(r.applied, gateway)
	r.want(gateway, kinds.Key{})
}

// want tells the source which ConfigMap a Gateway names. named is the zero Key if the Gateway names none.
func (r *Reconciler) want(gateway types.NamespacedName, named kinds.Key) {
	if r.named[gateway] == named {
		return
	}
	if r.named[gateway] = named; named == (kinds.Key{}) {
		delete(r.named, gateway)
	}
	r.mu.Lock()
	source := r.source
	r.mu.Unlock()
	if source != nil {
		source.Want(slices.Collect(maps.Values(r.named)))
	}
}

// parameters returns the parameters of a Gateway: the defaults of its class, then its own. known is false until the
// source has read them.
func (r *Reconciler) parameters(o *kinds.Object) (list []Parameters, known bool, err error) {
	g := o.Spec.(*gatewayv1.Gateway)
	own, named, err := reference(g, o.Namespace)
	if err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	read := r.source != nil && r.maps != nil
	r.mu.Unlock()
	if !read {
		return nil, false, nil
	}
	r.want(request(o.Key).NamespacedName, own)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(r.defaults), func(a, b kinds.Key) int { return cmp.Compare(a.Name, b.Name) }) {
		if r.defaults[k] == string(g.Spec.GatewayClassName) {
			list = append(list, Parameters{k.String(), r.maps[k].Data})
			break // only the first is in force
		}
	}
	if !named {
		return list, true, nil
	}
	if m := r.maps[own]; m != nil {
		return append(list, Parameters{own.String(), m.Data}), true, nil
	}
	if r.source != nil && slices.Contains(r.source.Missing(), own) {
		return nil, false, fmt.Errorf("spec.infrastructure.parametersRef: %s does not exist", own)
	}
	return nil, false, nil
}

// findVersion reads the API server's version once. After a failure it backs off, and meanwhile returns the last error
// without a request.
func (r *Reconciler) findVersion(ctx context.Context) error {
	if r.version != 0 || r.backoff.IsInBackOffSinceUpdate("", time.Now()) {
		return r.versionError
	}
	r.version, r.versionError = r.askVersion(ctx)
	if r.versionError != nil {
		r.backoff.Next("", time.Now())
		r.versionError = fmt.Errorf("failed to get the version of the API server: %w", r.versionError)
	}
	return r.versionError
}

// askVersion requests the API server's version: 137 for 1.37.
func (r *Reconciler) askVersion(ctx context.Context) (int, error) {
	text, err := r.o.APIServer.Get(ctx, "/version")
	if err != nil {
		return 0, err
	}
	var info struct{ Major, Minor string }
	if err := json.Unmarshal(text, &info); err != nil {
		return 0, err
	}
	v, err := version.ParseGeneric(info.Major + "." + strings.TrimRight(info.Minor, "+"))
	if err != nil {
		return 0, err
	}
	return int(100*v.Major() + v.Minor()), nil
}

// Finding returns the finding for a Gateway whose objects could not be written.
func (r *Reconciler) Finding(request reconcile.Request, _ error) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "GatewayNotDeployed", Object: key(request).String(),
		Fix: "correct the fault that the message names: the Gateway is reconciled again by itself. Deployed objects keep their last state",
	}
}

// Findings returns the findings of reading ConfigMaps with parameters.
func (r *Reconciler) Findings() []diag.Diagnostic {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.source == nil {
		return nil
	}
	return r.source.Findings()
}

// object returns an empty object of a kind.
func object(k *kinds.Kind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(apiVersion(k))
	u.SetKind(k.Name)
	return u
}

// listOf returns an empty list of objects of a kind.
func listOf(k *kinds.Kind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(apiVersion(k))
	l.SetKind(k.Name + "List")
	return l
}
