package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// operator turns an IstioOperator into values of charts.
type operator struct {
	file     string
	istiod   *yaml.Node // values of the chart istiod
	base     *yaml.Node // values of the chart base
	cni      *yaml.Node // values of Istio's chart cni
	gateways []*release
	points   []migration.Point
}

// profiles says what a profile of istioctl sets beyond the defaults of its charts.
func profiles() map[string]string {
	const ambient = "ambient mode is not supported"
	return map[string]string{
		"default": "", "minimal": "", "empty": "", "openshift": "",
		"demo":              "set meshConfig.accessLogFile: /dev/stdout, traceSampling: 100, autoscaleEnabled: false and its extensionProviders",
		"preview":           "set meshConfig.defaultConfig.proxyMetadata.ISTIO_META_DNS_CAPTURE: \"true\"",
		"remote":            "set istiodRemote.enabled: true, configMap: false and global.omitSidecarInjectorConfigMap: true",
		"stable":            "the policy of stable objects is not installed",
		"ambient":           ambient,
		"openshift-ambient": ambient,
	}
}

// ofPilot returns the values of the chart istiod that settings of Kubernetes become, by the setting.
func ofPilot() map[string]string {
	return map[string]string{
		"affinity": "affinity", "nodeSelector": "nodeSelector", "tolerations": "tolerations", "podAnnotations": "podAnnotations",
		"serviceAnnotations": "serviceAnnotations", "resources": "resources", "replicaCount": "replicaCount", "volumes": "volumes",
		"volumeMounts": "volumeMounts", "podDisruptionBudget": "podDisruptionBudget", "imagePullPolicy": "global.imagePullPolicy",
		"priorityClassName": "global.priorityClassName", "hpaSpec.minReplicas": "autoscaleMin", "hpaSpec.maxReplicas": "autoscaleMax",
		"hpaSpec.behavior": "autoscaleBehavior", "strategy.rollingUpdate.maxSurge": "rollingMaxSurge",
		"strategy.rollingUpdate.maxUnavailable": "rollingMaxUnavailable",
	}
}

// ofGateway returns the same for the chart gateway.
func ofGateway() map[string]string {
	list := map[string]string{
		"hpaSpec.minReplicas": "autoscaling.minReplicas", "hpaSpec.maxReplicas": "autoscaling.maxReplicas",
		"hpaSpec.behavior": "autoscaling.autoscaleBehavior", "serviceAnnotations": "service.annotations", "service": "service",
	}
	for _, same := range []string{"affinity", "nodeSelector", "tolerations", "podAnnotations", "resources", "replicaCount", "volumes",
		"volumeMounts", "podDisruptionBudget", "imagePullPolicy", "priorityClassName", "readinessProbe", "strategy", "securityContext"} {
		list[same] = same
	}
	return list
}

// read takes the values out of an IstioOperator.
func (o *operator) read(root *yaml.Node) {
	o.istiod, o.base, o.cni = mapping(root), mapping(root), mapping(root)
	spec := get(root, "spec")
	if spec == nil {
		return
	}
	each(spec, func(key, n *yaml.Node) {
		switch key.Value {
		case "values", "unvalidatedValues":
			o.values(n)
		case "meshConfig":
			o.set(o.istiod, "meshConfig", key, n)
		case "hub", "tag":
			o.set(o.istiod, "global."+key.Value, key, n)
		case "revision", "compatibilityVersion":
			o.set(o.istiod, key.Value, key, n)
		case "profile":
			o.profile(key, n)
		case "components":
			each(n, o.component)
		case "namespace", "installPackagePath":
			o.add(key, false, "spec."+key.Value+" has another place", "give the namespace to helm install by -n")
		default:
			o.add(key, true, "spec."+key.Value+" has no effect here", "leave it out, after you have seen what it did")
		}
	})
}

func (o *operator) add(at *yaml.Node, inTheWay bool, text, fix string) {
	o.points = append(o.points, migration.Point{InTheWay: inTheWay, Text: text, Fix: fix, Where: fmt.Sprintf("%s:%d", o.file, at.Line)})
}

func (o *operator) profile(key, n *yaml.Node) {
	sets, known := profiles()[n.Value]
	switch {
	case !known:
		o.add(key, true, fmt.Sprintf("profile %s is not one of istioctl's", n.Value), "write out the values that it sets")
	case n.Value == "openshift":
		o.set(o.istiod, "global.platform", key, n)
	case n.Value == "empty":
		o.add(key, false, "profile empty installs nothing by itself", "")
	case sets != "":
		o.add(key, true, fmt.Sprintf("profile %s sets nothing here", n.Value), sets)
	}
}

// values divides values among the charts.
func (o *operator) values(n *yaml.Node) {
	each(n, func(key, n *yaml.Node) {
		switch name := key.Value; {
		case name == "cni" && n.Kind == yaml.MappingNode:
			each(n, func(key, n *yaml.Node) {
				if key.Value == "enabled" || key.Value == "provider" {
					o.set(o.istiod, "cni."+key.Value, key, n)
				} else {
					o.set(o.cni, key.Value, key, n)
				}
			})
		case name == "base" && n.Kind == yaml.MappingNode:
			each(n, func(key, n *yaml.Node) {
				if strings.HasPrefix(key.Value, "validation") {
					o.set(o.istiod, "base."+key.Value, key, n)
				}
				o.set(o.base, "base."+key.Value, key, n)
			})
		case name == "defaultRevision":
			o.set(o.base, name, key, n)
		default:
			o.merge(o.istiod, key, n)
		}
	})
}

// merge adds a value to a tree. Mappings are merged.
func (o *operator) merge(to, key, n *yaml.Node) {
	if old := get(to, key.Value); old != nil && old.Kind == yaml.MappingNode && n.Kind == yaml.MappingNode {
		each(n, func(key, n *yaml.Node) { o.merge(old, key, n) })
		return
	}
	o.set(to, key.Value, key, n)
}

// component takes the settings of one component.
func (o *operator) component(key, n *yaml.Node) {
	name := key.Value
	enabled := scalar(n, "enabled")
	switch name {
	case "base":
		if enabled == "false" {
			o.add(key, false, "components.base is not enabled", "install the custom resources yourself")
		}
	case "pilot":
		if enabled == "false" {
			o.add(key, false, "components.pilot is not enabled", "install no release of the chart istiod")
		}
		o.settings(n, "components.pilot", o.istiod, ofPilot())
	case "cni":
		if enabled == "true" {
			o.set(o.istiod, "cni.enabled", key, get(n, "enabled"))
		}
		if k8s := get(n, "k8s"); k8s != nil {
			o.add(k8s, true, "components.cni.k8s has another place", "give it to the release of Istio's chart cni")
		}
	case "ztunnel":
		if enabled == "true" {
			o.add(key, true, "components.ztunnel belongs to an ambient mesh, which is not supported", "give these workloads sidecars first")
		}
	case "ingressGateways", "egressGateways":
		for i, g := range n.Content {
			if scalar(g, "enabled") != "false" {
				o.gateway(g, fmt.Sprintf("components.%s[%d]", name, i))
			}
		}
	default:
		o.add(key, enabled == "true", "components."+name+" has no effect here", "leave it out, after you have seen what it did")
	}
}

// gateway makes the values of a release of the chart gateway.
func (o *operator) gateway(n *yaml.Node, path string) {
	r := &release{chart: "gateway", file: o.file, root: mapping(n)}
	r.name = scalar(n, "name")
	if namespace := scalar(n, "namespace"); namespace != "" {
		r.name += " in namespace " + namespace
	}
	each(n, func(key, n *yaml.Node) {
		switch key.Value {
		case "name":
			o.set(r.root, "name", key, n)
		case "label":
			o.set(r.root, "labels", key, n)
		case "hub", "tag":
			o.add(key, true, path+"."+key.Value+" has no effect here", "the control plane's injection chooses the image: annotate the pods")
		case "enabled", "namespace", "k8s":
		default:
			o.add(key, true, path+"."+key.Value+" has no effect here", "leave it out, after you have seen what it did")
		}
	})
	o.settings(n, path, r.root, ofGateway())
	o.gateways = append(o.gateways, r)
}

// settings takes the settings of Kubernetes of a component, whose places are known.
func (o *operator) settings(component *yaml.Node, path string, to *yaml.Node, places map[string]string) {
	var walk func(n *yaml.Node, path, name string)
	walk = func(n *yaml.Node, path, name string) {
		each(n, func(key, n *yaml.Node) {
			name, path := strings.TrimPrefix(name+"."+key.Value, "."), path+"."+key.Value
			below := slices.ContainsFunc(slices.Collect(maps.Keys(places)), func(p string) bool { return strings.HasPrefix(p, name+".") })
			switch place := places[name]; {
			case place != "":
				o.set(to, place, key, n)
			case name == "env":
				o.environment(n, to)
			case name == "hpaSpec.scaleTargetRef": // the chart names its own Deployment
			case name == "strategy.type" && n.Value == "RollingUpdate":
			case name == "overlays":
				for i, overlay := range n.Content {
					o.add(overlay, true, fmt.Sprintf("%s[%d] has no effect here: it patches %s %s of Istio's chart", path, i,
						scalar(overlay, "kind"), scalar(overlay, "name")), "make the same patch by a post-renderer of Helm, if no value does it")
				}
			case below && n.Kind == yaml.MappingNode:
				walk(n, path, name)
			default:
				o.add(key, true, path+" has no place in the chart", "make the same change by a post-renderer of Helm")
			}
		})
	}
	if k8s := get(component, "k8s"); k8s != nil {
		walk(k8s, path+".k8s", "")
	}
}

// environment turns a list of variables into the values of a chart.
func (o *operator) environment(list, to *yaml.Node) {
	for _, x := range list.Content {
		name := get(x, "name")
		if name == nil {
			continue
		}
		if value := get(x, "value"); value != nil {
			o.set(to, "env."+name.Value, name, value)
		} else if get(x, "valueFrom") != nil {
			all := get(to, "envVarFrom")
			if all == nil {
				all = &yaml.Node{Kind: yaml.SequenceNode, Line: x.Line}
				o.set(to, "envVarFrom", name, all)
			}
			all.Content = append(all.Content, x)
		}
	}
}

// set puts a value at a path of names, with the line of its key.
func (o *operator) set(to *yaml.Node, path string, key, value *yaml.Node) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		next := get(to, name)
		if next == nil {
			next = mapping(key)
			to.Content = append(to.Content, named(name, key), next)
		}
		to = next
	}
	last := names[len(names)-1]
	for i := 0; i+1 < len(to.Content); i += 2 {
		if to.Content[i].Value == last {
			to.Content[i], to.Content[i+1] = named(last, key), value
			return
		}
	}
	to.Content = append(to.Content, named(last, key), value)
}

// releases returns the releases that take the place of the IstioOperator.
func (o *operator) releases() (list []*release) {
	for chart, root := range map[string]*yaml.Node{"istiod": o.istiod, "base": o.base, "cni": o.cni} {
		if len(root.Content) > 0 {
			list = append(list, &release{chart: chart, file: o.file, root: root})
		}
	}
	slices.SortFunc(list, func(a, b *release) int { return strings.Compare(a.chart, b.chart) })
	return append(list, o.gateways...)
}

func mapping(at *yaml.Node) *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Line: at.Line} }

func named(name string, at *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: name, Line: at.Line, HeadComment: at.HeadComment, LineComment: at.LineComment}
}

// each calls f with the keys and the values of a mapping.
func each(n *yaml.Node, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f(n.Content[i], n.Content[i+1])
	}
}
