package check

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/report"
)

// Cluster is a cluster that is asked through its API server.
type Cluster struct {
	client dynamic.Interface
	raw    interface { // apiserver.Client
		Get(ctx context.Context, path string) ([]byte, error)
	}
	Namespace string // of the control plane
	Revision  string // of the control plane; empty is the default one
	Now       time.Time
}

// NewCluster returns a cluster that a configuration leads to.
func NewCluster(config *rest.Config, namespace, revision string, now time.Time) (*Cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	raw, err := apiserver.New(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{client: client, raw: raw, Namespace: namespace, Revision: revision, Now: now}, nil
}

// suffix is that of the names of objects of the revision.
func (c *Cluster) suffix() string {
	if c.Revision == "" || c.Revision == "default" {
		return ""
	}
	return "-" + c.Revision
}

// kubectl is a command for the namespace of the control plane.
func (c *Cluster) kubectl(rest string) string { return "kubectl -n " + c.Namespace + " " + rest }

// restart is the command that has new replicas do what is the leader's, such as writing roots and caBundles.
func (c *Cluster) restart() string {
	return c.kubectl("rollout restart deploy/istiod" + c.suffix())
}

// Resources that are read.
func resource(group, version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

// list reads the objects of a resource, of a namespace or of all.
func list[T any](ctx context.Context, c *Cluster, r schema.GroupVersionResource, namespace, selector string) ([]T, error) {
	all, err := c.client.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all.Items))
	for i, item := range all.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// get reads one object; there may be none.
func get[T any](ctx context.Context, c *Cluster, r schema.GroupVersionResource, namespace, name string) (*T, error) {
	o, err := c.client.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// unread adds what could not be looked at. It reports whether there was an error.
func (r *Report) unread(name string, err error) bool {
	if err == nil {
		return false
	}
	r.skip(name, "", "%v", err)
	return true
}

// reachable fails if the API server cannot be asked, and returns its version.
func (c *Cluster) reachable(ctx context.Context) (version, platform string, err error) {
	text, err := c.raw.Get(ctx, "/version")
	if err != nil {
		return "", "", fmt.Errorf("ask the API server: %w", err)
	}
	var v struct{ GitVersion, Platform string }
	if err := json.Unmarshal(text, &v); err != nil {
		return "", "", fmt.Errorf("the API server's version: %w", err)
	}
	return v.GitVersion, v.Platform, nil
}

// Installed checks what is installed in a cluster. It fails where the API server cannot be asked at all.
func (r *Report) Installed(ctx context.Context, c *Cluster) error {
	if _, _, err := c.reachable(ctx); err != nil {
		return err
	}
	r.begin("installation")
	r.deployments(ctx, c)
	r.configMaps(ctx, c)
	r.kinds(ctx, c)
	r.begin("leaders")
	r.leaders(ctx, c)
	r.begin("roots")
	roots := r.roots(ctx, c)
	r.begin("webhooks")
	r.webhooks(ctx, c, roots)
	return nil
}

// revisionOf returns the revision that an object's labels name.
func revisionOf(labels map[string]string) string {
	return cmp.Or(labels[names.LabelRevision], "default")
}

func (c *Cluster) ours(labels map[string]string) bool {
	return "-"+revisionOf(labels) == c.suffix() || c.suffix() == "" && revisionOf(labels) == "default"
}

func (r *Report) deployments(ctx context.Context, c *Cluster) {
	all, err := list[appsv1.Deployment](ctx, c, resource("apps", "v1", "deployments"), c.Namespace, "app=istiod")
	if r.unread("replicas", err) {
		return
	}
	all = slices.DeleteFunc(all, func(d appsv1.Deployment) bool { return !c.ours(d.Labels) })
	if len(all) == 0 {
		r.wrong("replicas", "pilot-discovery check --pre && helm install istiod charts/istiod -n "+c.Namespace,
			"no Deployment of a control plane in %s (revision %s)", c.Namespace, revisionOf(map[string]string{names.LabelRevision: c.Revision}))
		return
	}
	for _, d := range all {
		wanted := int32(1)
		if d.Spec.Replicas != nil {
			wanted = *d.Spec.Replicas
		}
		switch ready := d.Status.ReadyReplicas; {
		case ready == 0:
			r.wrong("replicas", c.kubectl("describe pods -l app=istiod"), "%s: none of %d is ready", d.Name, wanted)
		case ready < wanted:
			r.warn("replicas", c.kubectl("describe pods -l app=istiod"), "%s: %d of %d are ready", d.Name, ready, wanted)
		default:
			r.ok("replicas", "%s: %d of %d are ready", d.Name, ready, wanted)
		}
		for _, container := range d.Spec.Template.Spec.Containers {
			if container.Name != "discovery" {
				continue
			}
			r.ok("image", "%s", container.Image)
			if _, limited := container.Resources.Limits[corev1.ResourceMemory]; !limited {
				r.ok("memory", "no limit is set")
			} else {
				r.ok("memory", "at most %s", container.Resources.Limits.Memory())
			}
		}
	}
}

// configMaps checks those that the server reads.
func (r *Report) configMaps(ctx context.Context, c *Cluster) {
	for _, x := range []struct{ name, key, what string }{
		{"istio" + c.suffix(), "mesh", "mesh configuration"}, {"istio-sidecar-injector" + c.suffix(), "config", "injection"},
	} {
		m, err := get[corev1.ConfigMap](ctx, c, resource("", "v1", "configmaps"), c.Namespace, x.name)
		switch {
		case r.unread(x.what, err):
		case m == nil:
			r.warn(x.what, "helm upgrade istiod charts/istiod -n "+c.Namespace, "there is no ConfigMap %s/%s", c.Namespace, x.name)
		case m.Data[x.key] == "":
			r.wrong(x.what, c.kubectl("edit configmap "+x.name), "the ConfigMap %s has no %s", x.name, x.key)
		default:
			r.ok(x.what, "ConfigMap %s", x.name)
		}
	}
}

// leaders checks that somebody does what one replica does for all.
func (r *Report) leaders(ctx context.Context, c *Cluster) {
	leases, err := list[coordinationv1.Lease](ctx, c, resource("coordination.k8s.io", "v1", "leases"), c.Namespace, "")
	if r.unread("leases", err) {
		return
	}
	held, at := 0, ""
	for _, l := range leases {
		if !c.elects(l.Name) {
			continue
		}
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		if holder == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			r.warn("lease", c.kubectl("get lease "+l.Name+" -o yaml"), "nobody holds %s", l.Name)
			continue
		}
		if end := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second); c.Now.After(end.Add(slow)) {
			r.wrong("lease", c.kubectl("get pods -l app=istiod"), "%s was last renewed by %s %s ago", l.Name, holder,
				span(c.Now.Sub(l.Spec.RenewTime.Time)))
			continue
		}
		held, at = held+1, holder
	}
	if held > 0 {
		r.ok("leases", "%d held, for example by %s", held, at)
	} else {
		r.skip("leases", "", "none of this control plane")
	}
}

// elects reports whether a Lease is one of the control plane's elections.
func (c *Cluster) elects(name string) bool {
	return slices.Contains([]string{
		"istio-leader", "istio-namespace-controller-election", "istio-workloadentry-cleanup" + c.suffix(),
		"istio-webhook-controller-election" + c.suffix(),
		"istio-gateway-deployment-" + revisionOf(map[string]string{names.LabelRevision: c.Revision}), "istio-analyze-leader",
	}, name)
}

// rootsMap is the ConfigMap that each namespace has its roots in.
const rootsMap = "istio-ca-root-cert"

// roots checks that namespaces have the roots of the mesh, and returns those of the control plane's namespace.
func (r *Report) roots(ctx context.Context, c *Cluster) string {
	maps, err := list[corev1.ConfigMap](ctx, c, resource("", "v1", "configmaps"), "", "istio.io/config=true")
	if r.unread("namespaces", err) {
		return ""
	}
	of := map[string]string{}
	for _, m := range maps {
		if m.Name == rootsMap {
			of[m.Namespace] = m.Data["root-cert.pem"]
		}
	}
	own := of[c.Namespace]
	if own == "" {
		r.wrong("roots", c.kubectl("logs deploy/istiod"+c.suffix()+" | grep -i root"), "there is no ConfigMap %s in %s: no leader has written it",
			rootsMap, c.Namespace)
		return ""
	}
	if end, err := earliestEnd([]byte(own)); err != nil {
		r.wrong("roots", c.kubectl("delete configmap "+rootsMap), "the ConfigMap %s: %v", rootsMap, err)
	} else {
		r.expiry("roots", end, c.Now, c.newRoots(ctx, c.Now.After(end)))
	}
	namespaces, err := list[corev1.Namespace](ctx, c, resource("", "v1", "namespaces"), "", "")
	if r.unread("namespaces", err) {
		return own
	}
	var missing, other []string
	for _, n := range namespaces {
		switch roots, found := of[n.Name]; {
		case strings.HasPrefix(n.Name, "kube-") || n.Status.Phase == corev1.NamespaceTerminating:
		case !found:
			missing = append(missing, n.Name)
		case roots != own:
			other = append(other, n.Name)
		}
	}
	if len(missing) > 0 {
		r.wrong("namespaces", c.restart(), "%s without the ConfigMap %s: %s",
			report.Amount(len(missing), "namespace"), rootsMap, few(missing))
	}
	if len(other) > 0 {
		r.wrong("namespaces", c.restart(), "%s with other roots than %s: %s",
			report.Amount(len(other), "namespace"), c.Namespace, few(other))
	}
	if len(missing)+len(other) == 0 {
		r.ok("namespaces", "all %d have them", len(of))
	}
	return own
}

// newRoots returns the command that has the mesh get another root. A server replaces its own in time, but not one that
// has expired.
func (c *Cluster) newRoots(ctx context.Context, expired bool) string {
	secret := resource("", "v1", "secrets")
	if own, err := get[metav1.PartialObjectMetadata](ctx, c, secret, c.Namespace, "cacerts"); err == nil && own != nil {
		return plugIn(c.Namespace)
	}
	if expired {
		return c.kubectl("delete secret istio-ca-secret") + " && " + c.restart()
	}
	return c.restart()
}

// few names the first of a list.
func few(list []string) string {
	const shown = 5
	if len(list) <= shown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
}

// earliestEnd returns when the first certificate of a bundle expires.
func earliestEnd(bundle []byte) (end time.Time, err error) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return end, err
		}
		if end.IsZero() || cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	if end.IsZero() {
		return end, errors.New("it has no certificate")
	}
	return end, nil
}
