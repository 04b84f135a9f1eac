package injector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Options are the dependencies and settings of an Injector.
type Options struct {
	Revision string // revision of this control plane
	World    World
	// NativeSidecars reports whether proxies are native sidecars (init containers that keep running) if a pod does not
	// say. Optional; by default they are not.
	NativeSidecars func() bool
	Logger         *slog.Logger
	Time           time.Duration // time limit for the templates of one pod; 0 stands for 2 s
}

// World is the configuration in force. It is safe for concurrent use.
type World interface {
	Mesh() *mesh.Config
	// ProxyConfigs returns the ProxyConfigs that apply to a namespace's pod with some labels: first the ProxyConfigs
	// without a selector, of which a later one overrides those before it, and then the one that selects the pod, or nil.
	ProxyConfigs(namespace string, labels map[string]string) (whole []*networkingv1beta1.ProxyConfig, selecting *networkingv1beta1.ProxyConfig)
}

// MeshOnly is a World that has a mesh configuration and no ProxyConfig.
type MeshOnly struct{ Config *mesh.Config }

// Mesh implements World.
func (m MeshOnly) Mesh() *mesh.Config { return m.Config }

// ProxyConfigs implements World.
func (MeshOnly) ProxyConfigs(string, map[string]string) ([]*networkingv1beta1.ProxyConfig, *networkingv1beta1.ProxyConfig) {
	return nil, nil
}

// Injector adds proxies to pods, by the Config in force.
type Injector struct {
	o       Options
	config  atomic.Pointer[Config]
	running chan struct{} // semaphore of running templates
	written *lru.Cache[string, *written]
}

// Bounds of the cache of parsed template output, which is the same for all pods of a workload.
const (
	maxWritten      = 64       // number of texts
	maxWrittenBytes = 64 << 10 // bytes of a text; longer ones are not cached
)

// maxRunning bounds the templates that run at a time.
const maxRunning = 16

// New returns an Injector without a Config.
func New(o Options) *Injector {
	o.Time = cmp.Or(o.Time, 2*time.Second)
	kept, err := lru.New[string, *written](maxWritten)
	if err != nil {
		panic(err) // unreachable: the size is positive
	}
	return &Injector{o: o, running: make(chan struct{}, maxRunning), written: kept}
}

// Set puts a Config in force.
func (i *Injector) Set(c *Config) { i.config.Store(c) }

// Config returns the Config in force, or nil.
func (i *Injector) Config() *Config { return i.config.Load() }

// Request is one pod to inject, and its origin.
type Request struct {
	Pod       []byte // JSON
	Namespace string // namespace of the request, which the pod may omit
	Cluster   string // cluster in the request's path; by default from the values
	Network   string // network in the request's path; by default from the values
	// Workload is the object that creates the pod. Optional; by default it is derived from the pod's owner.
	Workload *Workload
}

// Workload is an object that creates pods, such as a Deployment.
type Workload struct {
	metav1.TypeMeta
	Name string
}

// Result is the outcome for a pod.
type Result struct {
	Skipped string         // why the pod is not changed; empty if it gets a proxy
	Pod     map[string]any // pod with the proxy, in JSON form
	Patch   []byte         // JSON patch from the request's pod to Pod

	Warnings []string // settings of the pod without effect
}

// Inject returns the outcome for a pod. An error names the fault of the pod or of the templates.
func (i *Injector) Inject(ctx context.Context, r Request) (*Result, error) {
	c := i.config.Load()
	if c == nil {
		return nil, fmt.Errorf("there are no templates in force: the ConfigMap of the injector is missing, was not read yet, or has errors")
	}
	user := &corev1.Pod{}
	if err := json.Unmarshal(r.Pod, user); err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	user.ManagedFields = nil // large, and kept by carry like unknown fields
	before, err := generic(user)
	if err != nil {
		return nil, err
	}
	if err := checkLists("", before); err != nil {
		return nil, err
	}
	user.Namespace = cmp.Or(user.Namespace, r.Namespace)
	why, unread := c.skip(user)
	if why != "" {
		return &Result{Skipped: why, Warnings: unread}, nil
	}
	if err := checkAnnotations(user.Annotations); err != nil {
		return nil, err
	}
	seen, users, err := original(user)
	if err != nil {
		return nil, err
	}
	m := i.o.World.Mesh()
	d, warnings, err := i.data(c, m, seen, r.Workload)
	if err != nil {
		return nil, err
	}
	out, err := i.render(ctx, c, user, before, users, d)
	if err != nil {
		return nil, err
	}
	pod := out.pod
	place(pod, c, r)
	more, err := i.complete(c, m, out, d)
	if err != nil {
		return nil, err
	}
	if r.Namespace != "" && before["metadata"].(map[string]any)["namespace"] == nil {
		pod.Namespace = "" // the API server sets it
	}
	result, err := difference(r.Pod, before, pod)
	if err != nil {
		return nil, err
	}
	result.Warnings = slices.Concat(unread, unusable(user.Annotations), warnings, more)
	return result, nil
}

// render returns a pod with the templates' output, and the user's containers merged over it. before is the pod in JSON
// form.
func (i *Injector) render(ctx context.Context, c *Config, user *corev1.Pod,
	before map[string]any, users overrides, d *data) (*rendering, error) {
	templates, err := c.selected(user.Annotations)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, i.o.Time)
	defer cancel()
	texts := make([]string, 0, len(templates))
	for _, name := range templates {
		text, err := execute(ctx, i.running, i.o.Logger, c.templates[name], d)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}
	w, err := i.read(templates, texts)
	if err != nil {
		return nil, err
	}
	if w.native && nativeProxy(user, &users) {
		if before, err = generic(user); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the templates take too long: %w", err)
	}
	out := &rendering{template: w.pod}
	if out.pod, err = w.merged(before); err != nil {
		return nil, err
	}
	out.pod.Namespace = cmp.Or(out.pod.Namespace, user.Namespace)
	if out.pod.Annotations == nil {
		out.pod.Annotations = map[string]string{}
	}
	if out.pod.Labels == nil {
		out.pod.Labels = map[string]string{}
	}
	return out, out.reapply(users)
}

// complete makes the remaining changes after the templates are merged. The warnings name parts of the pod that will
// fail.
func (i *Injector) complete(c *Config, m *mesh.Config, out *rendering, d *data) (warnings []string, err error) {
	pod := out.pod
	if warnings, err = mergePrometheus(pod, m); err != nil {
		return nil, err
	}
	announceSecurePort(pod)
	if rewrites(pod, c) {
		more, err := rewriteProbes(pod, statusPort(pod, m))
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, more...)
	}
	maps.Copy(pod.Annotations, c.annotations)
	order(pod, d.ProxyConfig.GetHoldApplicationUntilProxyStarts().GetValue() || c.read.Global.Proxy.HoldApplicationUntilProxyStarts)
	return warnings, i.sign(pod, out.template)
}

// imageUser is the user ID and group ID of the proxy's images.
const imageUser = 1337

// statusPort returns the port of the agent's status server, or 0 if there is none.
func statusPort(pod *corev1.Pod, m *mesh.Config) int32 {
	if n, err := strconv.ParseUint(pod.Annotations[statusPortAnnotation], 10, 16); err == nil {
		return int32(n)
	}
	return m.GetDefaultConfig().GetStatusPort()
}

// data returns the templates' input for a pod, and warnings about settings of the pod without effect.
func (i *Injector) data(c *Config, m *mesh.Config, pod *corev1.Pod, w *Workload) (*data, []string, error) {
	p, warnings, err := i.effective(m, pod)
	if err != nil {
		return nil, nil, err
	}
	d := &data{
		ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, ProxyConfig: p, MeshConfig: m.MeshConfig,
		Values: runtime.DeepCopyJSON(c.values), Revision: i.o.Revision,
		NativeSidecars:           i.o.NativeSidecars != nil && i.o.NativeSidecars(),
		InboundTrafficPolicyMode: strings.ToLower(m.GetInboundTrafficPolicy().GetMode().String()),
		CompliancePolicy:         string(m.Compliance),
	}
	d.TypeMeta, d.DeploymentMeta = workload(pod)
	if w != nil {
		d.TypeMeta, d.DeploymentMeta.Name = w.TypeMeta, w.Name
	}
	d.ProxyUID, d.ProxyGID = imageUser, imageUser
	if proxy := proxyOf(pod); proxy != nil && proxy.SecurityContext != nil {
		if id := proxy.SecurityContext.RunAsUser; id != nil {
			d.ProxyUID = *id
		}
		if id := proxy.SecurityContext.RunAsGroup; id != nil {
			d.ProxyGID = *id
		}
	}
	annotated := pod.Annotations[imageTypeAnnotation]
	g := &c.read.Global
	d.ProxyImage = c.read.image(g.Proxy.Image, nonEmpty(annotated, p.GetImage().GetImageType()))
	d.ProxyInitImage = c.read.image(g.ProxyInit.Image, annotated)
	return d, warnings, nil
}

// place sets the cluster and the network in the proxy's environment, from the path of the request, the values or a
// label.
func place(pod *corev1.Pod, c *Config, r Request) {
	network := nonEmpty(r.Network, c.read.Global.Network)
	if network != "" && pod.Labels[names.LabelNetwork] == "" {
		pod.Labels[names.LabelNetwork] = network
	}
	proxy := proxyOf(pod)
	if proxy == nil {
		return
	}
	if cluster := nonEmpty(r.Cluster, c.read.Global.MultiCluster.ClusterName); cluster != "" {
		setVariable(proxy, clusterVariable, cluster)
	}
	if n := pod.Labels[names.LabelNetwork]; n != "" {
		setVariable(proxy, networkVariable, n)
	}
}

// rewrites reports whether the agent serves the probes of a pod.
func rewrites(pod *corev1.Pod, c *Config) bool {
	if v, ok := pod.Annotations[rewriteAnnotation]; ok {
		if b, err := strconv.ParseBool(v); err == nil {
			return b
		}
	}
	return c.read.SidecarInjectorWebhook.RewriteAppHTTPProbe
}

// sign records in a pod which parts were added to it.
func (i *Injector) sign(pod, template *corev1.Pod) error {
	s := template.Spec
	text, err := toJSON(status{
		InitContainers:   namesOf(s.InitContainers, containerName),
		Containers:       namesOf(s.Containers, containerName),
		Volumes:          namesOf(s.Volumes, func(v corev1.Volume) string { return v.Name }),
		ImagePullSecrets: namesOf(s.ImagePullSecrets, func(r corev1.LocalObjectReference) string { return r.Name }),
		Revision:         nonEmpty(i.o.Revision, "default"),
	})
	pod.Annotations[statusAnnotation] = text
	return err
}
