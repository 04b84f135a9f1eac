package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// objects are the objects of a cluster or of files.
type objects struct {
	all   []migration.Object
	whole bool // whether all objects of a cluster were read, so that an object that is missing does not exist
}

// find returns the first object of a kind in a namespace that a condition holds for, or nil.
func (o objects) find(kind, namespace string, holds func(migration.Object) bool) *migration.Object {
	for i := range o.all {
		if x := o.all[i]; x.GetKind() == kind && x.GetNamespace() == namespace && holds(x) {
			return &x
		}
	}
	return nil
}

// named returns the object with a name, or nil.
func (o objects) named(kind, namespace, name string) *migration.Object {
	return o.find(kind, namespace, func(x migration.Object) bool { return x.GetName() == name })
}

// has reports whether objects of a kind were read.
func (o objects) has(kind string) bool {
	return o.whole || slices.ContainsFunc(o.all, func(x migration.Object) bool { return x.GetKind() == kind })
}

// running finds the values with which a chart would install a workload that runs: a control plane, or a gateway.
type running struct {
	objects
	workload  migration.Object // a Deployment or DaemonSet
	container map[string]any
	revision  string
	back      bool // whether it is of this project, and moves to Istio's chart
	gateway   bool // whether it is a gateway
	injected  bool // whether the values of injection are taken, which a release of Helm has too
	values    map[string]any
	points    []migration.Point
}

// suffix returns what the names of a revision's objects end with.
func (r *running) suffix() string {
	if r.revision == "" || r.revision == "default" {
		return ""
	}
	return "-" + r.revision
}

// set sets a value, unless it is empty.
func (r *running) set(path string, value any) {
	switch v := value.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case map[string]any:
		if len(v) == 0 {
			return
		}
	case []any:
		if len(v) == 0 {
			return
		}
	}
	at, names := r.values, strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[names[len(names)-1]] = value
}

// odd adds a point about something that the chart has no value for.
func (r *running) odd(o migration.Object, what string) {
	r.points = append(r.points, migration.Point{InTheWay: true, Where: o.Named(), Text: what + " has no place in the chart",
		Fix: "make the same change by a post-renderer of Helm"})
}

// istiodValues returns the values with which the chart istiod would install a control plane that runs. Values that the
// installed chart has by default are left out. injected says whether to take the values of injection too, and back
// whether the control plane is one of this project.
func istiodValues(t migration.Object, c map[string]any, of objects, injected, back bool) *running {
	r := &running{objects: of, workload: t, container: c, revision: revisionOf(t), injected: injected, back: back,
		values: map[string]any{}}
	if r.suffix() != "" {
		r.set("revision", r.revision)
	}
	if injected {
		r.injection()
	}
	r.deployment()
	r.pod([]string{"local-certs", "istio-token", "cacerts", "istio-kubeconfig", "istio-csr-dns-cert", "istio-csr-ca-configmap",
		"extracacerts", "istiod-tls", "istiod-ca", "config-volume", "inject"})
	r.containers("discovery")
	r.environment()
	r.arguments()
	r.scaling("autoscaleEnabled", "autoscaleMin", "autoscaleMax", "autoscaleBehavior", "cpu.targetAverageUtilization",
		"memory.targetAverageUtilization")
	r.account()
	r.service()
	r.mesh()
	r.configMaps()
	if hook := r.named("MutatingWebhookConfiguration", "", injector.MapName(r.revision)+r.suffixOfNamespace()); hook != nil {
		r.set("sidecarInjectorWebhookAnnotations", ownAnnotations(hook.GetAnnotations()))
	}
	r.withoutDefaults("istiod")
	return r
}

// suffixOfNamespace returns what names of objects without a namespace end with.
func (r *running) suffixOfNamespace() string {
	if r.workload.GetNamespace() == "istio-system" {
		return ""
	}
	return "-" + r.workload.GetNamespace()
}

// deployment takes the settings of the Deployment itself.
func (r *running) deployment() {
	spec, _, _ := unstructured.NestedMap(r.workload.Object, "spec")
	update, _, _ := unstructured.NestedMap(spec, "strategy", "rollingUpdate")
	r.set("rollingMaxSurge", update["maxSurge"])
	r.set("rollingMaxUnavailable", update["maxUnavailable"])
	if kind := r.workload.Field("spec", "strategy", "type"); kind != "" && kind != "RollingUpdate" {
		r.odd(r.workload, "spec.strategy.type="+kind)
	}
	r.set("deploymentLabels", ownLabels(r.workload.GetLabels()))
	r.set("deploymentAnnotations", ownAnnotations(r.workload.GetAnnotations()))
	meta := func(name string) map[string]string {
		m, _, _ := unstructured.NestedStringMap(spec, "template", "metadata", name)
		return m
	}
	r.set("podLabels", ownLabels(meta("labels")))
	r.set("podAnnotations", ownAnnotations(meta("annotations")))
}

// pod takes the settings of the pods. own are the volumes of the chart.
func (r *running) pod(own []string) {
	pod, _, _ := unstructured.NestedMap(r.workload.Object, "spec", "template", "spec")
	for _, same := range []string{"nodeSelector", "affinity", "topologySpreadConstraints", "initContainers"} {
		r.set(same, pod[same])
	}
	if r.gateway {
		r.set("priorityClassName", pod["priorityClassName"])
		r.set("tolerations", pod["tolerations"])
		r.set("imagePullSecrets", pod["imagePullSecrets"])
	} else {
		r.set("global.priorityClassName", pod["priorityClassName"])
		r.pullSecrets(pod["imagePullSecrets"])
		r.set("tolerations", without(pod["tolerations"], func(x map[string]any) bool {
			return x["key"] == names.TaintNotReady && x["operator"] == "Exists"
		}))
	}
	ofChart := func(x map[string]any) bool {
		name, _ := x["name"].(string)
		return slices.Contains(own, name)
	}
	r.set("volumes", without(pod["volumes"], ofChart))
	r.set("volumeMounts", without(r.container["volumeMounts"], ofChart))
	for _, name := range slices.Sorted(maps.Keys(pod)) {
		switch name {
		case "dnsPolicy", "dnsConfig", "securityContext":
			if r.gateway {
				continue
			}
		case "nodeSelector", "affinity", "topologySpreadConstraints", "initContainers", "priorityClassName", "tolerations", "volumes",
			"imagePullSecrets", "containers", "serviceAccountName", "serviceAccount", "terminationGracePeriodSeconds", "enableServiceLinks":
			continue
		}
		usual := map[string]string{"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
			"securityContext": "map[]", "hostNetwork": "false"}
		if usual[name] != fmt.Sprint(pod[name]) {
			r.odd(r.workload, "spec.template.spec."+name)
		}
	}
}

// pullSecrets takes the names of Secrets for images.
func (r *running) pullSecrets(list any) {
	var all []any
	for _, x := range asMaps(list) {
		if x["name"] != nil {
			all = append(all, x["name"])
		}
	}
	r.set("global.imagePullSecrets", all)
}

// containers takes the settings of the container with a name. Other containers have no place.
func (r *running) containers(name string) {
	for _, c := range r.workload.List("spec", "template", "spec", "containers") {
		if c["name"] != name {
			r.odd(r.workload, fmt.Sprintf("the container %v", c["name"]))
		}
	}
	c := r.container
	r.set("resources", c["resources"])
	if policy, _ := c["terminationMessagePolicy"].(string); policy != "File" {
		r.set("terminationMessagePolicy", policy)
	}
	image, _ := c["image"].(string)
	switch policy, _ := c["imagePullPolicy"].(string); policy { // the API server fills in the first two
	case "", "IfNotPresent":
	case "Always":
		if !strings.HasSuffix(image, ":latest") {
			r.set("global.imagePullPolicy", policy)
		}
	default:
		r.set("global.imagePullPolicy", policy)
	}
	seccomp, _, _ := unstructured.NestedMap(c, "securityContext", "seccompProfile")
	r.set("seccompProfile", seccomp)
	for _, field := range slices.Sorted(maps.Keys(c)) {
		switch field {
		case "name", "image", "args", "ports", "readinessProbe", "env", "envFrom", "resources", "securityContext", "volumeMounts",
			"imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy":
		default:
			r.odd(r.workload, fmt.Sprintf("%s of the container %s", field, name))
		}
	}
	context, _ := c["securityContext"].(map[string]any)
	for _, field := range slices.Sorted(maps.Keys(context)) {
		switch field {
		case "allowPrivilegeEscalation", "readOnlyRootFilesystem", "runAsNonRoot", "runAsUser", "runAsGroup", "capabilities", "seccompProfile":
		default:
			r.odd(r.workload, fmt.Sprintf("securityContext.%s of the container %s", field, name))
		}
	}
}

// environment takes the variables. Values of the chart stand for some of them.
func (r *running) environment() {
	list, _, _ := unstructured.NestedSlice(r.container, "env")
	var from []any
	for _, x := range asMaps(list) {
		name, _ := x["name"].(string)
		of, _ := x["valueFrom"].(map[string]any)
		if of == nil {
			text, _ := x["value"].(string)
			r.variable(name, text)
			continue
		}
		if field, _, _ := unstructured.NestedMap(of, "resourceFieldRef"); field != nil && (name == "GOMAXPROCS" || name == "GOMEMLIMIT") {
			continue
		}
		if name != "POD_NAME" && name != "POD_NAMESPACE" && name != "SERVICE_ACCOUNT" {
			from = append(from, map[string]any{"name": name, "valueFrom": of})
		}
	}
	r.set("envVarFrom", from)
	e := environmentOf(map[string]any{"envFrom": r.container["envFrom"]}, r.workload.GetNamespace(), r.all)
	for _, text := range e.known {
		name, value, _ := strings.Cut(text, "=")
		r.variable(name, value)
	}
}

// ofVariables returns the values of the chart that variables become, by the variable.
func ofVariables() map[string]string {
	return map[string]string{
		"PILOT_CERT_PROVIDER": "global.pilotCertProvider", "PILOT_CA_CERT_CONFIGMAP": "global.trustBundleName",
		"PILOT_CRL_CONFIGMAP": "crlConfigMapName", "CLUSTER_ID": "global.multiCluster.clusterName", "PLATFORM": "platform",
		"PILOT_TRACE_SAMPLING": "traceSampling", "EXTERNAL_ISTIOD": "global.externalIstiod",
	}
}

// variable takes one variable.
func (r *running) variable(name, text string) {
	if place := ofVariables()[name]; place != "" {
		switch {
		case name == "PILOT_TRACE_SAMPLING":
			r.set(place, number(text))
		case name == "EXTERNAL_ISTIOD":
			r.set(place, text == "true")
		case name != "CLUSTER_ID" || text != "Kubernetes":
			r.set(place, text)
		}
		return
	}
	switch name {
	case "REVISION", "KUBECONFIG", "POD_NAME", "POD_NAMESPACE", "SERVICE_ACCOUNT":
		return
	case "PILOT_ENABLE_ANALYSIS":
		if text == "false" {
			return
		}
	case "CA_TRUSTED_NODE_ACCOUNTS":
		if text == r.workload.GetNamespace()+"/ztunnel" {
			return
		}
	case "GODEBUG":
		if text == "fips140=only" { // the chart sets it for a policy of compliance
			return
		}
	}
	env, _ := r.values["env"].(map[string]any)
	if env == nil {
		env = map[string]any{}
		r.values["env"] = env
	}
	env[name] = text
}

// arguments takes the arguments. Values of the chart stand for some of them.
func (r *running) arguments() {
	args, _, _ := unstructured.NestedStringSlice(r.container, "args")
	_, idle, _ := judge(nil, args)
	var more []any
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		if !strings.HasPrefix(args[i], "--") {
			if i > 0 || args[i] != "discovery" {
				more = append(more, args[i])
			}
			continue
		}
		whole := []any{args[i]}
		if name == "log_as_json" {
			value = cmp.Or(value, "true")
		} else if !joined && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			value, whole = args[i], append(whole, args[i])
		}
		switch name {
		case "log_output_level":
			r.set("global.logging.level", value)
		case "log_as_json":
			r.set("global.logAsJson", value == "true")
		case "domain":
			r.set("global.proxy.clusterDomain", value)
		case "keepaliveMaxServerConnectionAge":
			r.set("keepaliveMaxServerConnectionAge", value)
		case "drainDuration", "shutdownDuration":
			r.set(strings.TrimSuffix(name, "Duration")+"Seconds", number(strings.TrimSuffix(value, "s")))
		case "monitoringAddr":
			if value != ":15014" {
				more = append(more, whole...)
			}
		default:
			if !slices.Contains(idle, name) {
				more = append(more, whole...)
			}
		}
	}
	r.set("extraContainerArgs", more)
}

// scaling takes the number of replicas, from a HorizontalPodAutoscaler if there is one. The names are of its values in
// the chart.
func (r *running) scaling(enabled, least, most, behavior, cpu, memory string) {
	of := func(x migration.Object) bool {
		return x.Field("spec", "scaleTargetRef", "name") == r.workload.GetName() &&
			x.Field("spec", "scaleTargetRef", "kind") == r.workload.GetKind()
	}
	switch scaler := r.find("HorizontalPodAutoscaler", r.workload.GetNamespace(), of); {
	case scaler != nil:
		spec, _, _ := unstructured.NestedMap(scaler.Object, "spec")
		r.set(least, spec["minReplicas"])
		r.set(most, spec["maxReplicas"])
		r.set(behavior, spec["behavior"])
		for _, m := range asMaps(spec["metrics"]) {
			name, _, _ := unstructured.NestedString(m, "resource", "name")
			share, found, _ := unstructured.NestedFieldNoCopy(m, "resource", "target", "averageUtilization")
			switch place := map[string]string{"cpu": cpu, "memory": memory}[name]; {
			case place != "" && found:
				r.set(place, share)
			default:
				r.odd(*scaler, fmt.Sprintf("a metric of type %v", m["type"]))
			}
		}
	case r.has("HorizontalPodAutoscaler"):
		r.set(enabled, false)
		count, _, _ := unstructured.NestedFieldNoCopy(r.workload.Object, "spec", "replicas")
		r.set("replicaCount", count)
	default:
		r.points = append(r.points, migration.Point{Where: r.workload.Named(),
			Text: "no HorizontalPodAutoscaler is among the files: the values keep the chart's own",
			Fix:  "add `hpa,pdb,sa` to the kinds that kubectl prints"})
	}
	labels, _, _ := unstructured.NestedStringMap(r.workload.Object, "spec", "template", "metadata", "labels")
	budget := r.find("PodDisruptionBudget", r.workload.GetNamespace(), func(x migration.Object) bool {
		selected, _, _ := unstructured.NestedStringMap(x.Object, "spec", "selector", "matchLabels")
		for name, value := range selected {
			if labels[name] != value {
				return false
			}
		}
		return len(selected) > 0
	})
	if budget == nil {
		return
	}
	spec, _, _ := unstructured.NestedMap(budget.Object, "spec")
	for _, name := range []string{"minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"} {
		r.set("podDisruptionBudget."+name, spec[name])
	}
}

// account takes the settings of the ServiceAccount.
func (r *running) account() {
	name := r.workload.Field("spec", "template", "spec", "serviceAccountName")
	if account := r.named("ServiceAccount", r.workload.GetNamespace(), name); account != nil {
		r.set("serviceAccountAnnotations", ownAnnotations(account.GetAnnotations()))
		r.pullSecrets(account.Object["imagePullSecrets"])
	}
}

// service takes the settings of the Service of a control plane.
func (r *running) service() {
	s := r.named("Service", r.workload.GetNamespace(), "istiod"+r.suffix())
	if s == nil {
		return
	}
	r.set("serviceAnnotations", ownAnnotations(s.GetAnnotations()))
	if policy := s.Field("spec", "ipFamilyPolicy"); policy != "SingleStack" { // which the API server fills in
		r.set("ipFamilyPolicy", policy)
		families, _, _ := unstructured.NestedSlice(s.Object, "spec", "ipFamilies")
		if policy != "" {
			r.set("ipFamilies", families)
		}
	}
	r.set("trafficDistribution", s.Field("spec", "trafficDistribution"))
	if kind := s.Field("spec", "type"); kind != "" && kind != "ClusterIP" {
		r.odd(*s, "spec.type="+kind)
	}
}

// configMaps takes what the chart writes into ConfigMaps of their own: the defaults of classes of Gateways, and roots
// for the servers that have the keys of token issuers.
func (r *running) configMaps() {
	if m := r.named("ConfigMap", r.workload.GetNamespace(), "pilot-jwks-extra-cacerts"+r.suffix()); m != nil {
		r.set("jwksResolverExtraRootCA", m.Field("data", "extra.pem"))
	}
	classes := map[string]any{}
	for _, m := range r.all {
		class := m.GetLabels()[names.LabelDefaultsForClass]
		if m.GetKind() != "ConfigMap" || m.GetNamespace() != r.workload.GetNamespace() || class == "" ||
			m.GetName() != fmt.Sprintf("istio-%s-gatewayclass-%s", cmp.Or(r.revision, "default"), class) {
			continue
		}
		defaults := map[string]any{}
		data, _, _ := unstructured.NestedStringMap(m.Object, "data")
		for _, kind := range slices.Sorted(maps.Keys(data)) {
			var overlay map[string]any
			if err := sigsyaml.Unmarshal([]byte(data[kind]), &overlay); err != nil {
				r.points = append(r.points, migration.Point{InTheWay: true, Where: m.Named(),
					Text: fmt.Sprintf("%s: %s: %v", m.Named(), kind, err), Fix: "correct it, or write it into gatewayClasses yourself"})
				continue
			}
			defaults[kind] = overlay
		}
		classes[class] = defaults
	}
	r.set("gatewayClasses", classes)
}

// mesh takes the mesh configuration, without what the chart writes by itself.
func (r *running) mesh() {
	m := r.named("ConfigMap", r.workload.GetNamespace(), "istio"+r.suffix())
	if m == nil {
		return
	}
	var mesh map[string]any
	if err := sigsyaml.Unmarshal([]byte(m.Field("data", "mesh")), &mesh); err != nil {
		return // the verdict about the mesh configuration says it
	}
	proxy, _ := mesh["defaultConfig"].(map[string]any)
	if proxy["discoveryAddress"] == fmt.Sprintf("istiod%s.%s.svc:15012", r.suffix(), r.workload.GetNamespace()) {
		delete(proxy, "discoveryAddress")
	}
	if mesh["rootNamespace"] == r.workload.GetNamespace() {
		delete(mesh, "rootNamespace")
	}
	if id, _ := proxy["meshId"].(string); id != "" {
		r.set("global.meshID", id)
		delete(proxy, "meshId")
	}
	providers, _ := mesh["defaultProviders"].(map[string]any)
	metrics, _ := providers["metrics"].([]any)
	switch {
	case len(metrics) == 0:
		r.set("telemetry.enabled", false)
	case len(metrics) == 1 && metrics[0] == "prometheus":
		delete(providers, "metrics")
	}
	for name, part := range map[string]map[string]any{"defaultConfig": proxy, "defaultProviders": providers} {
		if len(part) == 0 {
			delete(mesh, name)
		}
	}
	r.set("meshConfig", mesh)
	var networks struct{ Networks map[string]any }
	if sigsyaml.Unmarshal([]byte(m.Field("data", "meshNetworks")), &networks) == nil {
		r.set("global.meshNetworks", networks.Networks)
	}
}

// injection takes the values and the settings of injection.
func (r *running) injection() {
	m := r.named("ConfigMap", r.workload.GetNamespace(), injector.MapName(r.revision))
	if m == nil {
		if r.whole {
			r.set("global.omitSidecarInjectorConfigMap", true)
		}
		return
	}
	var values map[string]any
	if err := sigsyaml.Unmarshal([]byte(m.Field("data", "values")), &values); err != nil {
		r.points = append(r.points, migration.Point{InTheWay: true, Text: m.Named() + ": values: " + err.Error(), Where: m.Named()})
		return
	}
	pilot, _ := values["pilot"].(map[string]any)
	delete(pilot, "env") // the container has it
	prune(values)
	for _, from := range []map[string]any{values, pilot} {
		for name, value := range from {
			if name != "pilot" && name != "revision" && name != "istio_cni" {
				r.set(name, value)
			}
		}
	}
	if old, _ := values["istio_cni"].(map[string]any); old != nil { // its name in older charts
		r.set("cni.enabled", old["enabled"])
	}
	if global, _ := values["global"].(map[string]any); global["istioNamespace"] == r.workload.GetNamespace() {
		delete(global, "istioNamespace")
	}
	var config struct {
		Policy               string         `json:"policy"`
		AlwaysInjectSelector []any          `json:"alwaysInjectSelector"`
		NeverInjectSelector  []any          `json:"neverInjectSelector"`
		InjectedAnnotations  map[string]any `json:"injectedAnnotations"`
		DefaultTemplates     []any          `json:"defaultTemplates"`
		Templates            map[string]any `json:"templates"`
	}
	if err := sigsyaml.Unmarshal([]byte(m.Field("data", injector.ConfigKey)), &config); err != nil {
		return // addTemplates says it
	}
	r.set("global.proxy.autoInject", config.Policy)
	const of = "sidecarInjectorWebhook."
	r.set(of+"alwaysInjectSelector", config.AlwaysInjectSelector)
	r.set(of+"neverInjectSelector", config.NeverInjectSelector)
	r.set(of+"injectedAnnotations", config.InjectedAnnotations)
	if len(config.DefaultTemplates) != 1 || config.DefaultTemplates[0] != "sidecar" {
		r.set(of+"defaultTemplates", config.DefaultTemplates)
	}
	for _, name := range chartTemplates {
		delete(config.Templates, name)
	}
	r.set(of+"templates", config.Templates)
}
