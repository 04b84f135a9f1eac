package check

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	own "github.com/istiod-lite/istiod-lite/cmd/version"
)

// oldestKubernetes is the oldest release of Kubernetes that the charts support.
const oldestKubernetes = "1.29.0"

// Installable checks whether a control plane can be installed in a cluster. It fails if the API server does not answer.
func (r *Report) Installable(ctx context.Context, c *Cluster) error {
	found, platform, err := c.reachable(ctx)
	if err != nil {
		return err
	}
	r.begin("Kubernetes")
	if v, err := version.ParseGeneric(found); err != nil {
		r.warn("version", "", "%q is no version that can be compared: the charts need %s or later", found, oldestKubernetes)
	} else if v.LessThan(version.MustParseGeneric(oldestKubernetes)) {
		r.wrong("version", "", "%s is too old: the charts need %s or later, so upgrade the cluster", found, oldestKubernetes)
	} else {
		r.ok("version", "%s (%s)", found, platform)
	}
	r.permissions(ctx, c)
	r.begin("custom resources")
	r.definitions(ctx, c)
	r.begin("control planes")
	r.others(ctx, c)
	r.leftovers(ctx, c)
	return nil
}

// permission is a right that the installation of the charts needs.
type permission struct {
	verb, group, resource string
	namespaced            bool
}

func permissions() []permission {
	var all []permission
	for _, x := range []permission{
		{"", "apiextensions.k8s.io", "customresourcedefinitions", false},
		{"", "rbac.authorization.k8s.io", "clusterroles", false},
		{"", "rbac.authorization.k8s.io", "clusterrolebindings", false},
		{"", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", false},
		{"", "admissionregistration.k8s.io", "validatingwebhookconfigurations", false},
		{"", "rbac.authorization.k8s.io", "roles", true}, {"", "rbac.authorization.k8s.io", "rolebindings", true},
		{"", "apps", "deployments", true}, {"", "", "services", true}, {"", "", "serviceaccounts", true},
		{"", "", "configmaps", true}, {"", "", "secrets", true}, {"", "policy", "poddisruptionbudgets", true},
		{"", "autoscaling", "horizontalpodautoscalers", true},
	} {
		for _, verb := range []string{"get", "create", "patch"} {
			all = append(all, permission{verb, x.group, x.resource, x.namespaced})
		}
	}
	return append(all, permission{"get", "", "namespaces", false}, permission{"create", "", "namespaces", false})
}

// permissions asks the API server which of the needed rights the user has.
func (r *Report) permissions(ctx context.Context, c *Cluster) {
	denied := map[string][]string{}
	all := permissions()
	for _, p := range all {
		allowed, err := c.may(ctx, p)
		if r.unread("permissions", err) {
			return
		}
		if !allowed {
			name := strings.TrimSuffix(p.resource+"."+p.group, ".")
			denied[name] = append(denied[name], p.verb)
		}
	}
	if len(denied) == 0 {
		r.ok("permissions", "all %d that Helm needs for the charts", len(all))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(denied)) {
		where := ""
		if !strings.Contains(name, "cluster") && !strings.Contains(name, "webhook") && name != "namespaces" &&
			!strings.HasPrefix(name, "customresource") {
			where = " -n " + c.Namespace
		}
		r.wrong("permissions", "kubectl auth can-i "+denied[name][0]+" "+name+where+"  # ask an administrator for it", "you may not %s %s",
			strings.Join(denied[name], ", "), name)
	}
}

func (c *Cluster) may(ctx context.Context, p permission) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.verb, Group: p.group, Resource: p.resource,
		}},
	}
	if p.namespaced {
		review.Spec.ResourceAttributes.Namespace = c.Namespace
	}
	asked, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&review)
	if err != nil {
		return false, err
	}
	answer, err := c.client.Resource(resource("authorization.k8s.io", "selfsubjectaccessreviews")).
		Create(ctx, &unstructured.Unstructured{Object: asked}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask for the rights of the user: %w", err)
	}
	allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, nil
}

// definition holds the fields of a CustomResourceDefinition that are read.
type definition struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
}

// serves reports whether the definition serves one of the versions.
func (d definition) serves(versions []string) bool {
	for _, v := range d.Spec.Versions {
		if v.Served && slices.Contains(versions, v.Name) {
			return true
		}
	}
	return false
}

// allDefinitions returns the definitions of the cluster by name.
func (c *Cluster) allDefinitions(ctx context.Context) (map[string]definition, error) {
	all, err := list[definition](ctx, c, resource("apiextensions.k8s.io", "customresourcedefinitions"), "", "")
	byName := make(map[string]definition, len(all))
	for _, d := range all {
		byName[d.Name] = d
	}
	return byName, err
}

// definitions checks the custom resources of Istio and of the Gateway API before an installation.
func (r *Report) definitions(ctx context.Context, c *Cluster) {
	byName, err := c.allDefinitions(ctx)
	if r.unread("Istio", err) {
		return
	}
	var missing, foreign []string
	owners, releases, gateways := map[string]bool{}, map[string]bool{}, 0
	for _, k := range kinds.All() {
		name := k.Plural + "." + k.Group
		gateway := k.Group == "gateway.networking.k8s.io"
		if !k.Istio && !gateway {
			continue
		}
		d, found := byName[name]
		switch {
		case found && !d.serves(k.Versions):
			r.wrong(name, "kubectl get crd "+name+" -o jsonpath='{.spec.versions[*].name}'",
				"it serves none of the versions that this server reads: %s",
				strings.Join(k.Versions, ", "))
		case gateway && !found: // the installed channel or release lacks it
		case gateway:
			gateways++
			releases[d.Annotations[names.AnnotationBundleVersion]+" ("+d.Annotations[names.AnnotationChannel]+")"] = true
		case !found:
			missing = append(missing, k.Plural)
		case d.Labels[names.LabelAppManagedBy] != "Helm":
			foreign = append(foreign, name)
		default:
			owners[d.Annotations["meta.helm.sh/release-namespace"]+"/"+d.Annotations["meta.helm.sh/release-name"]] = true
		}
	}
	switch {
	case len(foreign) > 0:
		r.warn("Istio",
			"kubectl annotate crd -l chart=istio --overwrite meta.helm.sh/release-name=base meta.helm.sh/release-namespace="+c.Namespace+
				" && kubectl label crd -l chart=istio --overwrite app.kubernetes.io/managed-by=Helm  # or --set base.enableCRDTemplates=false",
			"%s not managed by Helm, which refuses to adopt them: %s", report.Amount(len(foreign), "definition"), few(foreign))
	case len(owners) > 0:
		r.ok("Istio", "of the Helm release %s", strings.Join(slices.Sorted(maps.Keys(owners)), ", "))
	default:
		r.ok("Istio", "not installed yet: the chart base installs them")
	}
	if len(missing) > 0 && len(foreign)+len(owners) > 0 {
		r.warn("missing", "helm upgrade --install base charts/base -n "+c.Namespace, "%s", strings.Join(missing, ", "))
	}
	switch {
	case gateways == 0:
		r.ok("Gateway API", "not installed, which is fine if it is not used")
	case len(releases) > 1:
		r.warn("Gateway API",
			"kubectl get crd -o custom-columns='NAME:.metadata.name,VERSION:.metadata.annotations.gateway\\.networking\\.k8s\\.io/bundle-version'",
			"definitions of several releases: %s", strings.Join(slices.Sorted(maps.Keys(releases)), ", "))
	default:
		r.ok("Gateway API", "%s, %d of its kinds are served", strings.Join(slices.Sorted(maps.Keys(releases)), ", "), gateways)
	}
}

// kinds checks that the custom resources of Istio exist. Without a definition, the server reads no object of its kind.
func (r *Report) kinds(ctx context.Context, c *Cluster) {
	byName, err := c.allDefinitions(ctx)
	if r.unread("custom resources", err) {
		return
	}
	var missing, unserved []string
	n := 0
	for _, k := range kinds.All() {
		if !k.Istio {
			continue
		}
		name := k.Plural + "." + k.Group
		switch d, found := byName[name]; {
		case !found:
			missing = append(missing, name)
		case !d.serves(k.Versions):
			unserved = append(unserved, name)
		default:
			n++
		}
	}
	fix := "helm upgrade --install base charts/base -n " + c.Namespace
	if len(missing) > 0 {
		r.wrong("custom resources", fix, "%s missing, so objects of these kinds cannot be written: %s",
			report.Amount(len(missing), "definition"), few(missing))
	}
	if len(unserved) > 0 {
		r.wrong("custom resources", fix, "%s without a version that this server reads: %s", report.Amount(len(unserved), "definition"),
			few(unserved))
	}
	if len(missing)+len(unserved) == 0 {
		r.ok("custom resources", "all %d of Istio's", n)
	}
}

// others looks for control planes in the cluster, and for objects of theirs that have the names of the installation. A
// control plane of this project with the same revision and namespace is the release to upgrade.
func (r *Report) others(ctx context.Context, c *Cluster) {
	all, err := list[appsv1.Deployment](ctx, c, resource("apps", "deployments"), "", "app=istiod")
	if r.unread("revisions", err) {
		return
	}
	if len(all) == 0 {
		r.ok("revisions", "none")
	}
	for _, d := range all {
		what := fmt.Sprintf("revision %s, %s/%s", revisionOf(d.Labels), d.Namespace, d.Name)
		for _, container := range d.Spec.Template.Spec.Containers {
			if container.Name == "discovery" {
				what += ", " + container.Image
			}
		}
		switch {
		case !c.ours(d.Labels):
			r.ok("revisions", "%s", what)
		case d.Namespace == c.Namespace && own.Own(d.Labels):
			r.ok("revisions", "%s: already installed, helm upgrade --install changes it", what)
		case d.Namespace == c.Namespace:
			r.warn("revisions", "pilot-discovery check --pre --revision NEW  # to install a second revision",
				"%s: helm install would replace it", what)
		default:
			r.wrong("revisions", "pilot-discovery check --pre --revision NEW", "%s: another control plane has this revision", what)
		}
	}
	service, err := get[corev1.Service](ctx, c, resource("", "services"), c.Namespace, "istiod"+c.suffix())
	switch {
	case r.unread("ports", err):
	case service == nil:
		r.ok("ports", "the Service istiod%s is free", c.suffix())
	default:
		missing := []string{}
		for _, port := range []int32{15010, 15012, 443, 15014} {
			if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }) {
				missing = append(missing, fmt.Sprint(port))
			}
		}
		if len(missing) > 0 {
			r.wrong("ports", c.kubectl("get service "+service.Name+" -o yaml"), "the Service %s lacks %s, which proxies and the API server call",
				service.Name, strings.Join(missing, ", "))
		} else {
			r.ok("ports", "the Service %s has all ports", service.Name)
		}
	}
}

// leftovers looks for webhooks whose server is gone. They block every write that they match.
func (r *Report) leftovers(ctx context.Context, c *Cluster) {
	all, err := c.hooks(ctx)
	if r.unread("webhooks", err) {
		return
	}
	seen, left := map[string]bool{}, 0
	for _, h := range all {
		s := h.client.Service
		if s == nil || seen[h.resource+"/"+h.configuration] {
			continue
		}
		seen[h.resource+"/"+h.configuration] = true
		service, err := get[corev1.Service](ctx, c, resource("", "services"), s.Namespace, s.Name)
		if r.unread("webhooks", err) {
			return
		}
		if service == nil {
			left++
			r.wrong("webhooks", "kubectl delete "+h.resource+" "+h.configuration,
				"%s is left over: it calls the Service %s/%s, which does not exist",
				h.configuration, s.Namespace, s.Name)
		}
	}
	if left == 0 {
		r.ok("webhooks", "%d of control planes, none left over", len(seen))
	}
}

// NoCluster adds the result that there is no cluster to ask.
func (r *Report) NoCluster() {
	r.begin("cluster")
	r.wrong("cluster", "pilot-discovery check --pre --kubeconfig FILE",
		"no kubeconfig, so no cluster was asked: only the ports of this machine are checked")
}

// LocalPorts checks that the default addresses of a server are free on this machine.
func (r *Report) LocalPorts(ctx context.Context, addresses map[string]string) {
	r.begin("ports")
	var free []string
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", addresses[name])
		if err != nil {
			r.wrong("ports", "pilot-discovery discovery --"+name+" 127.0.0.1:0  # any free port", "%s: %v", name, err)
			continue
		}
		_ = l.Close()
		free = append(free, addresses[name])
	}
	if len(free) > 0 {
		r.ok("ports", "%s are free on this machine", strings.Join(free, ", "))
	}
}
