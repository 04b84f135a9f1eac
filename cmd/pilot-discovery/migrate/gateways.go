package migrate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// gatewayOf returns the container of a workload that is a gateway of a chart, not one that a control plane deploys for
// a Gateway of the Gateway API.
func gatewayOf(t migration.Object) (container map[string]any, ok bool) {
	if t.GetKind() != "Deployment" && t.GetKind() != "DaemonSet" || t.GetLabels()[names.LabelGateway] != "" {
		return nil, false
	}
	for _, c := range t.List("spec", "template", "spec", "containers") {
		args, _, _ := unstructured.NestedStringSlice(c, "args")
		if c["name"] == "istio-proxy" && (c["image"] == "auto" || slices.Contains(args, "router")) {
			return c, true
		}
	}
	return nil, false
}

// gatewaysOf returns the values of the gateways that no release of Helm and no IstioOperator has made.
func (h *helmStore) gatewaysOf(of objects, given []*release, back bool) (list []*release, err error) {
	for _, t := range of.all {
		c, ok := gatewayOf(t)
		ok = ok && givenFor(t, given) == nil
		if s := h.releases[t.GetNamespace()+"/"+releaseName(t)]; !ok || s != nil || back != version.Own(t.GetLabels()) {
			continue
		}
		r, err := releaseOf(gatewayValues(t, c, of), "gateway")
		if err != nil {
			return nil, err
		}
		r.name = gatewayName(t.GetName(), t.GetNamespace())
		list = append(list, r)
	}
	return list, nil
}

// gatewayValues returns the values with which the chart gateway would install a gateway that runs.
func gatewayValues(t migration.Object, c map[string]any, of objects) *running {
	r := &running{objects: of, workload: t, container: c, injected: true, gateway: true, values: map[string]any{"name": t.GetName()}}
	injected := c["image"] == "auto" // else the chart wrote the whole container
	if t.GetKind() == "DaemonSet" {
		r.set("kind", "DaemonSet")
	}
	pod := func(field string) map[string]string {
		m, _, _ := unstructured.NestedStringMap(t.Object, "spec", "template", "metadata", field)
		return m
	}
	if revision := pod("labels")[names.LabelRevision]; revision != "default" {
		r.set("revision", revision)
	}
	network := t.GetLabels()[names.LabelNetwork]
	r.set("networkGateway", network)
	labels := ownLabels(t.GetLabels())
	delete(labels, names.LabelNetwork)
	selected, _, _ := unstructured.NestedStringMap(t.Object, "spec", "selector", "matchLabels")
	for name, usual := range map[string]string{"app": t.GetName(), "istio": strings.TrimPrefix(t.GetName(), "istio-")} {
		if value := selected[name]; value != "" && value != usual {
			labels[name] = value
		}
	}
	r.set("labels", labels)
	annotations := ownAnnotations(pod("annotations"))
	for _, name := range []string{"prometheus.io/path", names.LabelRevision} {
		delete(annotations, name)
	}
	if annotations[names.AnnotationTemplates] == "gateway" {
		delete(annotations, names.AnnotationTemplates)
	}
	r.set("podAnnotations", annotations)
	r.set("annotations", ownAnnotations(t.GetAnnotations()))
	r.set("resources", c["resources"])
	spec, _, _ := unstructured.NestedMap(t.Object, "spec", "template", "spec")
	r.pod([]string{"workload-socket", "credential-socket", "workload-certs", "istiod-ca-cert", "istio-envoy", "istio-data", "podinfo",
		"istio-token", "config-volume", "ingressgateway-certs", "ingressgateway-ca-certs", "egressgateway-certs", "egressgateway-ca-certs"})
	for _, other := range t.List("spec", "template", "spec", "containers") {
		if other["name"] != "istio-proxy" {
			more, _ := r.values["additionalContainers"].([]any)
			r.set("additionalContainers", append(more, other))
		}
	}
	r.gatewayEnvironment()
	if injected {
		r.set("readinessProbe", c["readinessProbe"])
		r.set("lifecycle", c["lifecycle"])
		r.security(spec, c)
	}
	if spec["dnsPolicy"] != "ClusterFirst" {
		r.set("dnsPolicy", spec["dnsPolicy"])
	}
	r.set("dnsConfig", spec["dnsConfig"])
	r.set("terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"])
	r.set("minReadySeconds", fieldOf(t, "spec", "minReadySeconds"))
	update, _, _ := unstructured.NestedMap(t.Object, "spec", "strategy", "rollingUpdate")
	for name, usual := range map[string]string{"maxSurge": "25%", "maxUnavailable": "25%"} {
		if update[name] != nil && update[name] != usual {
			r.set("strategy.rollingUpdate."+name, update[name])
		}
	}
	if t.GetKind() == "Deployment" {
		r.scaling("autoscaling.enabled", "autoscaling.minReplicas", "autoscaling.maxReplicas", "autoscaling.autoscaleBehavior",
			"autoscaling.targetCPUUtilizationPercentage", "autoscaling.targetMemoryUtilizationPercentage")
	}
	if name := t.Field("spec", "template", "spec", "serviceAccountName"); name != t.GetName() {
		r.set("serviceAccount.name", name)
	}
	if account := r.named("ServiceAccount", t.GetNamespace(), t.Field("spec", "template", "spec", "serviceAccountName")); account != nil {
		r.set("serviceAccount.annotations", ownAnnotations(account.GetAnnotations()))
	}
	r.gatewayService()
	r.withoutDefaults("gateway")
	return r
}

// fieldOf returns a field of an object, or nil.
func fieldOf(o migration.Object, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return value
}

// gatewayEnvironment takes the variables of a gateway that neither a chart nor injection sets.
func (r *running) gatewayEnvironment() {
	ofChart := []string{"PILOT_CERT_PROVIDER", "CA_ADDR", "NODE_NAME", "POD_NAME", "POD_NAMESPACE", "INSTANCE_IP", "HOST_IP",
		"ISTIO_CPU_LIMIT", "SERVICE_ACCOUNT", "TRUST_DOMAIN", "ISTIO_META_WORKLOAD_NAME", "ISTIO_META_OWNER", "ISTIO_META_MESH_ID",
		"ISTIO_META_UNPRIVILEGED_POD", "ISTIO_META_CLUSTER_ID", "ISTIO_META_NODE_NAME", "ISTIO_META_REQUESTED_NETWORK_VIEW",
		"GOMAXPROCS", "GOMEMLIMIT"}
	list, _, _ := unstructured.NestedSlice(r.container, "env")
	env, from := map[string]any{}, []any{}
	for _, x := range asMaps(list) {
		name, _ := x["name"].(string)
		switch {
		case slices.Contains(ofChart, name):
		case x["valueFrom"] != nil:
			from = append(from, x)
		default:
			text, _ := x["value"].(string)
			env[name] = text
		}
	}
	r.set("env", env)
	r.set("envVarFrom", from)
}

// security takes the security contexts of a gateway, unless they are those of the chart.
func (r *running) security(pod, container map[string]any) {
	ports := map[string]any{"sysctls": []any{map[string]any{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}}}
	if context, _ := pod["securityContext"].(map[string]any); !sameTree(context, ports) {
		r.set("securityContext", context)
	}
	usual := map[string]any{"allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
		"capabilities": map[string]any{"drop": []any{"ALL"}}}
	if context, _ := container["securityContext"].(map[string]any); !sameTree(context, usual) {
		r.set("containerSecurityContext", context)
	}
}

// gatewayService takes the settings of the Service of a gateway.
func (r *running) gatewayService() {
	s := r.named("Service", r.workload.GetNamespace(), r.workload.GetName())
	if s == nil {
		if r.has("Service") {
			r.set("service.type", "None")
		}
		return
	}
	spec, _, _ := unstructured.NestedMap(s.Object, "spec")
	kind := s.Field("spec", "type")
	r.set("service.type", kind)
	r.set("service.annotations", ownAnnotations(s.GetAnnotations()))
	var ports []any
	for _, p := range asMaps(spec["ports"]) {
		p = maps.Clone(p)
		if kind != "NodePort" { // the API server chose it
			delete(p, "nodePort")
		}
		ports = append(ports, p)
	}
	if r.values["networkGateway"] == nil {
		r.set("service.ports", ports)
	}
	for _, same := range []string{"loadBalancerIP", "loadBalancerClass", "loadBalancerSourceRanges", "externalIPs"} {
		r.set("service."+same, spec[same])
	}
	for name, usual := range map[string]any{"externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
		"ipFamilyPolicy": "SingleStack", "allocateLoadBalancerNodePorts": true} {
		if spec[name] != usual {
			r.set("service."+name, spec[name])
		}
	}
	if policy, _ := spec["ipFamilyPolicy"].(string); policy != "" && policy != "SingleStack" {
		r.set("service.ipFamilies", spec["ipFamilies"])
	}
	more := map[string]any{}
	selector, _ := spec["selector"].(map[string]any)
	for name, value := range selector {
		if name != "app" && name != "istio" {
			more[name] = value
		}
	}
	r.set("service.selectorLabels", more)
}
