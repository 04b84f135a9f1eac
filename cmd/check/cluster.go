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
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/report"
)

// Cluster is a cluster whose API server is asked.
type Cluster struct {
	client dynamic.Interface
	raw    interface {
		Get(ctx context.Context, path string) ([]byte, error)
	}
	Namespace string // the control plane's namespace
	Revision  string // the control plane's revision; empty means default
	Now       time.Time
}

// NewCluster returns the cluster that a configuration leads to.
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

// suffix returns the end of the names of the revision's objects, such as "-canary", or an empty string.
func (c *Cluster) suffix() string {
	if c.Revision == "" || c.Revision == "default" {
		return ""
	}
	return "-" + c.Revision
}

// kubectl returns a command in the namespace of the control plane.
func (c *Cluster) kubectl(rest string) string { return "kubectl -n " + c.Namespace + " " + rest }

// restart returns the command that starts new replicas. Their leader writes the roots and the caBundles again.
func (c *Cluster) restart() string {
	return c.kubectl("rollout restart deploy/istiod" + c.suffix())
}

// resource returns version v1 of a resource.
func resource(group, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// list reads the objects of a resource in a namespace, or in all namespaces if it is empty.
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

// get reads one object. It returns nil if the object does not exist.
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

// unread adds a skipped result if err is not nil, and reports whether it did.
func (r *Report) unread(name string, err error) bool {
	if err == nil {
		return false
	}
	r.skip(name, "", "%v", err)
	return true
}

// reachable returns the version of the API server, or an error if the API server does not answer.
func (c *Cluster) reachable(ctx context.Context) (version, platform string, err error) {
	text, err := c.raw.Get(ctx, "/version")
	if err != nil {
		return "", "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	var v struct{ GitVersion, Platform string }
	if err := json.Unmarshal(text, &v); err != nil {
		return "", "", fmt.Errorf("decode the version of the API server: %w", err)
	}
	return v.GitVersion, v.Platform, nil
}

// Installed checks a control plane that is installed in a cluster. It fails if the API server does not answer.
func (r *Report) Installed(ctx context.Context, c *Cluster) error {
	if _, _, err := c.reachable(ctx); err != nil {
		return err
	}
	r.begin("installation")
	variables := r.deployments(ctx, c)
	r.configMaps(ctx, c)
	r.kinds(ctx, c)
	r.begin("leaders")
	r.leaders(ctx, c, variables)
	r.begin("roots")
	roots := r.roots(ctx, c, variables)
	r.begin("webhooks")
	r.webhooks(ctx, c, roots)
	return nil
}

// revisionOf returns the revision that an object's labels name, or "default".
func revisionOf(labels map[string]string) string {
	return cmp.Or(labels[names.LabelRevision], "default")
}

func (c *Cluster) ours(labels map[string]string) bool {
	return "-"+revisionOf(labels) == c.suffix() || c.suffix() == "" && revisionOf(labels) == "default"
}

// deployments checks the replicas, and returns the variables of their environment whose values are in the Deployment.
func (r *Report) deployments(ctx context.Context, c *Cluster) (variables map[string]string) {
	all, err := list[appsv1.Deployment](ctx, c, resource("apps", "deployments"), c.Namespace, "app=istiod")
	if r.unread("replicas", err) {
		return nil
	}
	all = slices.DeleteFunc(all, func(d appsv1.Deployment) bool { return !c.ours(d.Labels) })
	if len(all) == 0 {
		r.wrong("replicas", "pilot-discovery check --pre && helm install istiod charts/istiod -n "+c.Namespace,
			"the namespace %s has no Deployment of a control plane (revision %s)", c.Namespace,
			revisionOf(map[string]string{names.LabelRevision: c.Revision}))
		return nil
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
			for _, v := range container.Env {
				lists.Put(&variables, v.Name, v.Value)
			}
			if _, limited := container.Resources.Limits[corev1.ResourceMemory]; !limited {
				r.ok("memory", "no limit is set")
			} else {
				r.ok("memory", "at most %s", container.Resources.Limits.Memory())
			}
		}
	}
	return variables
}

// configMaps checks the ConfigMaps that the server reads.
func (r *Report) configMaps(ctx context.Context, c *Cluster) {
	for _, x := range []struct{ name, key, what string }{
		{"istio" + c.suffix(), "mesh", "mesh configuration"}, {"istio-sidecar-injector" + c.suffix(), "config", "injection"},
	} {
		m, err := get[corev1.ConfigMap](ctx, c, resource("", "configmaps"), c.Namespace, x.name)
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

// leaders checks that each Lease of the control plane has a holder that renews it.
func (r *Report) leaders(ctx context.Context, c *Cluster, variables map[string]string) {
	leases, err := list[coordinationv1.Lease](ctx, c, resource("coordination.k8s.io", "leases"), c.Namespace, "")
	if r.unread("leases", err) {
		return
	}
	held, at := 0, ""
	for _, l := range leases {
		if !c.elects(l.Name, variables) {
			continue
		}
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		if holder == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			r.warn("lease", c.kubectl("get lease "+l.Name+" -o yaml"), "no replica holds the Lease %s", l.Name)
			continue
		}
		if end := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second); c.Now.After(end.Add(slow)) {
			r.wrong("lease", c.kubectl("get pods -l app=istiod"), "the Lease %s was last renewed by %s %s ago", l.Name, holder,
				span(c.Now.Sub(l.Spec.RenewTime.Time)))
			continue
		}
		held, at = held+1, holder
	}
	if held > 0 {
		r.ok("leases", "%d held, for example by %s", held, at)
	} else {
		r.skip("leases", "", "this control plane has no Lease yet")
	}
}

// elects reports whether a Lease belongs to one of the control plane's elections.
func (c *Cluster) elects(name string, variables map[string]string) bool {
	return slices.Contains(names.Leases(c.Revision, variables["PILOT_CA_CERT_CONFIGMAP"], variables["PILOT_CRL_CONFIGMAP"]), name)
}

// roots checks that each namespace has the roots of the mesh. It returns the roots of the control plane's namespace, or
// an empty string if they cannot be read.
func (r *Report) roots(ctx context.Context, c *Cluster, variables map[string]string) string {
	if asked, err := strconv.ParseBool(variables["ENABLE_CLUSTER_TRUST_BUNDLE_API"]); err == nil && asked {
		return r.bundle(ctx, c, names.TrustBundle(variables["PILOT_CA_CERT_CONFIGMAP"]))
	}
	rootsMap, watched := cmp.Or(variables["PILOT_CA_CERT_CONFIGMAP"], names.RootsMap), variables["ISTIO_WATCH_NAMESPACE"]
	maps, err := list[corev1.ConfigMap](ctx, c, resource("", "configmaps"), "", "istio.io/config=true")
	if r.unread("namespaces", err) {
		return ""
	}
	byNamespace := map[string]string{}
	for _, m := range maps {
		if m.Name == rootsMap {
			byNamespace[m.Namespace] = m.Data["root-cert.pem"]
		}
	}
	own := byNamespace[c.Namespace]
	if own == "" {
		r.wrong("roots", c.kubectl("logs deploy/istiod"+c.suffix()+" | grep -i root"),
			"the ConfigMap %s is missing in %s: no leader has written it",
			rootsMap, c.Namespace)
		return ""
	}
	if end, err := earliestEnd([]byte(own)); err != nil {
		r.wrong("roots", c.kubectl("delete configmap "+rootsMap), "the ConfigMap %s: %v", rootsMap, err)
	} else {
		r.expiry("roots", end, c.Now, c.newRoots(ctx, c.Now.After(end)))
	}
	namespaces, err := list[corev1.Namespace](ctx, c, resource("", "namespaces"), "", "")
	if r.unread("namespaces", err) {
		return own
	}
	var missing, other []string
	for _, n := range namespaces {
		switch roots, found := byNamespace[n.Name]; {
		case watched != "" && n.Name != watched && n.Name != c.Namespace:
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
		r.wrong("namespaces", c.restart(), "%s with roots that differ from %s: %s",
			report.Amount(len(other), "namespace"), c.Namespace, few(other))
	}
	if len(missing)+len(other) == 0 {
		r.ok("namespaces", "all %d have the roots", len(byNamespace))
	}
	return own
}

// bundle checks the ClusterTrustBundle with the roots of the mesh, and returns the roots, or an empty string if they
// cannot be read.
func (r *Report) bundle(ctx context.Context, c *Cluster, name string) string {
	bundles := schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1beta1", Resource: "clustertrustbundles"}
	b, err := get[certificatesv1beta1.ClusterTrustBundle](ctx, c, bundles, "", name)
	switch {
	case r.unread("roots", err):
		return ""
	case b == nil:
		r.wrong("roots", c.kubectl("logs deploy/istiod"+c.suffix()+" | grep -i root"),
			"the ClusterTrustBundle %s is missing: no leader has written it, or the API server does not have the API", name)
		return ""
	}
	if end, err := earliestEnd([]byte(b.Spec.TrustBundle)); err != nil {
		r.wrong("roots", "kubectl delete clustertrustbundle "+name, "the ClusterTrustBundle %s: %v", name, err)
	} else {
		r.expiry("roots", end, c.Now, c.newRoots(ctx, c.Now.After(end)))
	}
	return b.Spec.TrustBundle
}

// newRoots returns the command that gives the mesh another root. A server replaces its own root in time, but not an
// expired one.
func (c *Cluster) newRoots(ctx context.Context, expired bool) string {
	secret := resource("", "secrets")
	if own, err := get[metav1.PartialObjectMetadata](ctx, c, secret, c.Namespace, "cacerts"); err == nil && own != nil {
		return plugIn(c.Namespace)
	}
	if expired {
		return c.kubectl("delete secret istio-ca-secret") + " && " + c.restart()
	}
	return c.restart()
}

// few returns the first names of a list, and how many more there are.
func few(list []string) string {
	const shown = 5
	if len(list) <= shown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
}

// earliestEnd returns the time when the first certificate of a bundle expires.
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
		return end, errors.New("it contains no certificate")
	}
	return end, nil
}
