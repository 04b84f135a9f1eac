package injector

import (
	"bytes"
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

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Options are what an Injector is made of.
type Options struct {
	Revision string              // of this control plane
	Mesh     func() *mesh.Config // the mesh configuration in force
	// ProxyConfig returns the configuration of a namespace's pod with some labels, over that of the mesh. Nil: it is
	// the mesh's.
	ProxyConfig func(base proxyConfig, namespace string, labels map[string]string) proxyConfig
	// NativeSidecars reports whether proxies are init containers that go on running, where a pod does not say. Nil:
	// they are not.
	NativeSidecars   func() bool
	CompliancePolicy string // of the server
	Logger           *slog.Logger
	Time             time.Duration // that the templates of one pod may take; 0 is 2 s
}

// Injector adds proxies to pods, by the Config in force.
type Injector struct {
	o      Options
	config atomic.Pointer[Config]
}

// New returns an Injector without a Config.
func New(o Options) *Injector {
	if o.Time == 0 {
		o.Time = 2 * time.Second
	}
	return &Injector{o: o}
}

// Set puts a Config in force.
func (i *Injector) Set(c *Config) { i.config.Store(c) }

// Config returns the one in force, or nil.
func (i *Injector) Config() *Config { return i.config.Load() }

// Request is one pod, and where it came from.
type Request struct {
	Pod       []byte // JSON
	Namespace string // where the pod is made; a pod in a request need not say it
	Cluster   string // of the path that was asked; empty: the templates say it
	Network   string // likewise
}

// Result is what becomes of a pod.
type Result struct {
	Skipped string // why it stays as it is; empty: it gets a proxy
	Pod     []byte // JSON, with the proxy
	Patch   []byte // the operations that make the request's pod into it, as JSON

	Warnings []string // what of the pod has no effect
}

// Inject returns what becomes of a pod. An error says what of the pod, or of the templates, is wrong.
func (i *Injector) Inject(ctx context.Context, r Request) (*Result, error) {
	c := i.config.Load()
	if c == nil {
		return nil, fmt.Errorf("there are no templates: the ConfigMap with them has not been read")
	}
	user := &corev1.Pod{}
	if err := json.Unmarshal(r.Pod, user); err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	before, err := generic(user)
	if err != nil {
		return nil, err
	}
	if user.Namespace == "" {
		user.Namespace = r.Namespace
	}
	if why := c.skip(user); why != "" {
		return &Result{Skipped: why}, nil
	}
	if err := checkAnnotations(user.Annotations); err != nil {
		return nil, err
	}
	user, users, err := original(user)
	if err != nil {
		return nil, err
	}
	m := i.o.Mesh()
	d, warnings, err := i.data(c, m, user)
	if err != nil {
		return nil, err
	}
	pod, err := i.render(ctx, c, m, user, users, d, r)
	if err != nil {
		return nil, err
	}
	if r.Namespace != "" && before["metadata"].(map[string]any)["namespace"] == nil {
		pod.Namespace = "" // the API server writes it
	}
	result, err := difference(r.Pod, before, pod)
	if err != nil {
		return nil, err
	}
	result.Warnings = warnings
	return result, nil
}

// difference returns a pod beside the text that it was before.
func difference(text []byte, before map[string]any, pod *corev1.Pod) (*Result, error) {
	after, err := generic(pod)
	if err != nil {
		return nil, err
	}
	var raw map[string]any
	if err := decode(text, &raw); err != nil {
		return nil, err
	}
	to := carry(raw, before, after)
	out, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	ops := patch("", raw, to)
	if ops == nil {
		ops = []operation{}
	}
	p, err := json.Marshal(ops)
	return &Result{Pod: out, Patch: p}, err
}

// generic returns a pod as maps and lists.
func generic(pod *corev1.Pod) (map[string]any, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := decode(text, &m); err != nil {
		return nil, err
	}
	if s, ok := m["status"].(map[string]any); ok && len(s) == 0 {
		delete(m, "status")
	}
	if _, ok := m["metadata"].(map[string]any); !ok {
		m["metadata"] = map[string]any{}
	}
	return m, nil
}

// decode keeps numbers as they are written.
func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// render returns a pod with its proxy.
func (i *Injector) render(ctx context.Context, c *Config, m *mesh.Config, user *corev1.Pod, users overrides, d *data, r Request) (*corev1.Pod, error) {
	templates, err := c.selected(user.Annotations)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, i.o.Time)
	defer cancel()
	out := rendering{user.DeepCopy(), &corev1.Pod{}}
	for _, name := range templates {
		text, err := execute(ctx, i.o.Logger, c.templates[name], d)
		if err != nil {
			return nil, err
		}
		if err := out.lay(name, text); err != nil {
			return nil, err
		}
	}
	pod := out.pod
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if err := out.reapply(users); err != nil {
		return nil, err
	}
	place(pod, c, r)
	if rewrites(pod, c) {
		if err := rewriteProbes(pod, m.GetDefaultConfig().GetStatusPort()); err != nil {
			return nil, err
		}
	}
	if err := mergePrometheus(pod, m); err != nil {
		return nil, err
	}
	maps.Copy(pod.Annotations, c.annotations)
	order(pod, d.ProxyConfig.GetHoldApplicationUntilProxyStarts().GetValue())
	return pod, i.sign(pod, out.template)
}

// data returns what templates read of a pod, and what of the pod has no effect.
func (i *Injector) data(c *Config, m *mesh.Config, pod *corev1.Pod) (*data, []string, error) {
	p, warnings, err := i.effective(m, pod)
	if err != nil {
		return nil, nil, err
	}
	d := &data{
		ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, ProxyConfig: p, MeshConfig: m.MeshConfig, Values: c.values, Revision: i.o.Revision,
		NativeSidecars: i.o.NativeSidecars != nil && i.o.NativeSidecars(), InboundTrafficPolicyMode: strings.ToLower(m.GetInboundTrafficPolicy().GetMode().String()),
		CompliancePolicy: i.o.CompliancePolicy,
	}
	d.TypeMeta, d.DeploymentMeta = workload(pod)
	annotated := pod.Annotations[imageTypeAnnotation]
	g := &c.read.Global
	d.ProxyImage = c.read.image(g.Proxy.Image, nonEmpty(annotated, p.GetImage().GetImageType()))
	d.ProxyInitImage = c.read.image(g.ProxyInit.Image, annotated)
	return d, warnings, nil
}

// place tells the proxy its cluster and its network, where the path of the request or a label says them.
func place(pod *corev1.Pod, c *Config, r Request) {
	network := nonEmpty(r.Network, c.read.Global.Network)
	if network != "" && pod.Labels[networkLabel] == "" {
		pod.Labels[networkLabel] = network
	}
	proxy := proxyOf(pod)
	if proxy == nil {
		return
	}
	if r.Cluster != "" {
		setVariable(proxy, clusterVariable, r.Cluster)
	}
	if n := pod.Labels[networkLabel]; n != "" {
		setVariable(proxy, networkVariable, n)
	}
}

// rewrites reports whether the probes of a pod go through its agent.
func rewrites(pod *corev1.Pod, c *Config) bool {
	if v, ok := pod.Annotations[rewriteAnnotation]; ok {
		b, err := strconv.ParseBool(v)
		return err == nil && b
	}
	return c.read.SidecarInjectorWebhook.RewriteAppHTTPProbe
}

// sign writes into a pod what was added to it.
func (i *Injector) sign(pod, template *corev1.Pod) error {
	s := template.Spec
	text, err := toJSON(status{
		InitContainers:   names(s.InitContainers, containerName),
		Containers:       names(s.Containers, containerName),
		Volumes:          names(s.Volumes, func(v corev1.Volume) string { return v.Name }),
		ImagePullSecrets: names(s.ImagePullSecrets, func(r corev1.LocalObjectReference) string { return r.Name }),
		Revision:         nonEmpty(i.o.Revision, "default"),
	})
	pod.Annotations[statusAnnotation] = text
	return err
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
