package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// operator turns an IstioOperator into values of charts. The value that is put first is in force.
type operator struct {
	file        string
	profile     *yaml.Node // names the profile, or the object if it names none
	istiod      *yaml.Node // values of the chart istiod
	base        *yaml.Node // values of the chart base
	cni         *yaml.Node // values of Istio's chart cni
	allGateways *yaml.Node // values of all gateways, under istio-ingressgateway and istio-egressgateway
	installed   []string   // charts whose component is enabled
	gateways    []*release
	points      []migration.Point
	added       []string // values that the profile sets
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

// ofGateway returns the values of the chart gateway that settings of Kubernetes become.
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

// ofAllGateways returns the values of the chart gateway that values of all ingress or egress gateways become.
func ofAllGateways() map[string]string {
	list := map[string]string{
		"autoscaleEnabled": "autoscaling.enabled", "autoscaleMin": "autoscaling.minReplicas", "autoscaleMax": "autoscaling.maxReplicas",
		"autoscaleBehavior":               "autoscaling.autoscaleBehavior",
		"cpu.targetAverageUtilization":    "autoscaling.targetCPUUtilizationPercentage",
		"memory.targetAverageUtilization": "autoscaling.targetMemoryUtilizationPercentage",
		"rollingMaxSurge":                 "strategy.rollingUpdate.maxSurge", "serviceAnnotations": "service.annotations",
		"rollingMaxUnavailable": "strategy.rollingUpdate.maxUnavailable",
	}
	for _, same := range []string{"name", "labels", "env", "replicaCount", "resources", "podAnnotations", "nodeSelector", "tolerations",
		"additionalContainers", "serviceAccount"} {
		list[same] = same
	}
	for _, name := range []string{"ports", "type", "loadBalancerIP", "loadBalancerSourceRanges", "externalTrafficPolicy",
		"ipFamilyPolicy", "ipFamilies"} {
		list[name] = "service." + name
	}
	return list
}

// read takes the values out of an IstioOperator. Components are in force before values, and these before the other
// fields. The profile is last.
func (o *operator) read(root *yaml.Node) {
	o.profile, o.istiod, o.base, o.cni, o.allGateways = root, mapping(root), mapping(root), mapping(root), mapping(root)
	spec := get(root, "spec")
	name := "default"
	each(spec, func(key, n *yaml.Node) {
		if key.Value == "profile" && n.Value != "" {
			o.profile, name = key, n.Value
		}
	})
	profile, values := profiles()[name], get(spec, "values")
	ofCharts := cmp.Or(scalar(values, "profile"), scalar(values, "global", "profile"), profile.Charts)

	components := mapping(root)
	fill(components, get(spec, "components"))
	fill(components, &profile.Components)
	each(components, o.component)
	o.values(get(spec, "unvalidatedValues"))
	o.values(values)
	o.values(o.fields(spec))
	for _, one := range slices.Compact([]string{name, cmp.Or(ofCharts, name)}) {
		p, known := profiles()[one]
		if !known {
			o.add(o.profile, true, fmt.Sprintf("profile %s is not one of istioctl's", one), "write out the values that it sets")
		}
		o.values(&p.Values)
		each(&p.Gateways, func(key, n *yaml.Node) { o.put(o.allGateways, key.Value, key, n) })
	}
	if ofCharts != "" {
		o.put(o.cni, "profile", o.profile, &yaml.Node{Kind: yaml.ScalarNode, Value: ofCharts})
	}
	for _, kind := range []string{"ingress", "egress"} {
		for i, n := range elements(components, kind+"Gateways") {
			o.addGateway(n, fmt.Sprintf("components.%sGateways[%d]", kind, i), "istio-"+kind+"gateway", name)
		}
	}
	if len(o.added) > 0 {
		o.add(o.profile, false, fmt.Sprintf("profile %s sets %s", cmp.Or(ofCharts, name), strings.Join(o.added, ", ")),
			"-o values writes out what has an effect here")
	}
}

// add adds a point, once.
func (o *operator) add(at *yaml.Node, inTheWay bool, text, fix string) {
	p := migration.Point{InTheWay: inTheWay, Text: text, Fix: fix, Where: fmt.Sprintf("%s:%d", o.file, cmp.Or(at.Line, o.profile.Line))}
	if !slices.Contains(o.points, p) {
		o.points = append(o.points, p)
	}
}

// put puts a value at a path of names. The values that the tree has stay in force.
func (o *operator) put(to *yaml.Node, path string, key, n *yaml.Node) {
	added := putAt(to, path, key, n)
	if key.Line == 0 {
		o.added = append(o.added, added...)
	}
}

// fields returns the values that fields of the spec stand for.
func (o *operator) fields(spec *yaml.Node) *yaml.Node {
	values := mapping(spec)
	each(spec, func(key, n *yaml.Node) {
		switch key.Value {
		case "components", "values", "unvalidatedValues", "profile":
		case "hub", "tag":
			putAt(values, "global."+key.Value, key, n)
		case "meshConfig", "revision", "compatibilityVersion":
			put(values, key, n)
		case "namespace":
			o.add(key, false, "spec.namespace has another place", "give the namespace to helm install by -n")
		case "installPackagePath":
			o.add(key, true, "spec.installPackagePath has no effect here: it names charts of istioctl",
				"leave it out, after you have compared these charts with Istio's")
		default:
			o.add(key, true, "spec."+key.Value+" has no effect here", "leave it out, after you have seen what it did")
		}
	})
	return values
}

// values divides values among the charts.
func (o *operator) values(n *yaml.Node) {
	each(n, func(key, n *yaml.Node) {
		name, parts := key.Value, n.Kind == yaml.MappingNode
		switch {
		case name == "profile":
		case name == "pilot" && parts: // it means the same as at the top
			o.values(n)
		case name == "cni" && parts:
			each(n, func(key, n *yaml.Node) {
				if key.Value == "enabled" || key.Value == "provider" {
					o.put(o.istiod, "cni."+key.Value, key, n)
				} else {
					o.put(o.cni, key.Value, key, n)
				}
			})
		case name == "base" && parts:
			each(n, func(key, n *yaml.Node) {
				if strings.HasPrefix(key.Value, "validation") {
					o.put(o.istiod, "base."+key.Value, key, n)
				}
				o.put(o.base, "base."+key.Value, key, n)
			})
		case name == "gateways" && parts:
			each(n, func(key, n *yaml.Node) {
				if key.Value == "istio-ingressgateway" || key.Value == "istio-egressgateway" {
					o.put(o.allGateways, key.Value, key, n)
				} else {
					o.put(o.istiod, "gateways."+key.Value, key, n)
				}
			})
		case name == "defaultRevision":
			o.put(o.base, name, key, n)
		case name == "experimental": // both charts have a policy of stable objects
			o.put(o.base, name, key, n)
			o.put(o.istiod, name, key, n)
		case name == "envVarFrom" || name == "volumes" || name == "volumeMounts": // a component may have more of them
			if list := get(o.istiod, name); list != nil && list.Kind == yaml.SequenceNode {
				list.Content = append(list.Content, n.Content...)
			} else {
				o.put(o.istiod, name, key, n)
			}
		default:
			o.put(o.istiod, name, key, n)
		}
	})
}

// component takes the settings of one component. The settings of a component that is not enabled have no effect.
func (o *operator) component(key, n *yaml.Node) {
	name, enabled := key.Value, on(n, true)
	path := "components." + name
	chart := name
	switch name {
	case "ingressGateways", "egressGateways": // addGateway takes them
		return
	case "base":
		if !enabled {
			o.add(key, false, "components.base is not enabled", "install the custom resources yourself")
		}
	case "pilot":
		chart = "istiod"
		if !enabled {
			o.add(key, false, "components.pilot is not enabled", "install no release of the chart istiod")
		}
	case "cni":
		if explicit := get(n, "enabled"); explicit != nil {
			o.put(o.istiod, "cni.enabled", key, explicit)
		}
	case "ztunnel":
		if enabled {
			o.add(key, true, "components.ztunnel belongs to an ambient mesh, which is not supported", "give these workloads sidecars first")
		}
		return
	default:
		o.add(key, on(n, false), path+" has no effect here", "leave it out, after you have seen what it did")
		return
	}
	if !enabled {
		return
	}
	o.installed = append(o.installed, chart)
	each(n, func(key, n *yaml.Node) {
		field := key.Value
		switch {
		case field == "enabled":
		case field == "namespace":
			o.add(key, false, path+".namespace has another place", "give the namespace to helm install by -n")
		case field == "k8s" && name == "pilot":
			o.settings(n, path+".k8s", o.istiod, ofPilot())
		case field == "k8s" && name == "cni":
			o.add(key, true, path+".k8s has another place", "give it to the release of Istio's chart cni")
		case (field == "hub" || field == "tag") && name == "cni":
			o.put(o.cni, field, key, n)
		case (field == "hub" || field == "tag") && name == "pilot":
			o.add(key, false, path+"."+field+" has no effect here: it names the image of istiod", "remove it")
		default:
			o.add(key, true, path+"."+field+" has no effect here", "leave it out, after you have seen what it did")
		}
	})
}

// addGateway makes the values of a release of the chart gateway. ofAll names the values of all gateways of its kind.
func (o *operator) addGateway(n *yaml.Node, path, ofAll, profile string) {
	all := get(o.allGateways, ofAll)
	if !on(n, true) && !on(all, false) {
		return
	}
	r := &release{chart: "gateway", name: scalar(n, "name"), file: o.file, profile: o.profile, root: mapping(n)}
	if n.Line == 0 {
		o.add(n, false, fmt.Sprintf("profile %s installs the gateway %s", profile, r.name), "install a release of the chart gateway for it")
	}
	if namespace := scalar(n, "namespace"); namespace != "" {
		r.name += " in namespace " + namespace
	}
	each(n, func(key, n *yaml.Node) {
		switch key.Value {
		case "name":
			put(r.root, key, n)
		case "label":
			putAt(r.root, "labels", key, n)
		case "hub", "tag":
			o.add(key, true, path+"."+key.Value+" has no effect here", "the control plane's injection chooses the image: annotate the pods")
		case "enabled", "namespace", "k8s":
		default:
			o.add(key, true, path+"."+key.Value+" has no effect here", "leave it out, after you have seen what it did")
		}
	})
	o.settings(get(n, "k8s"), path+".k8s", r.root, ofGateway())
	o.settings(all, "values.gateways."+ofAll, r.root, ofAllGateways())
	keepSelector(r.root, ofAll)
	o.gateways = append(o.gateways, r)
}

// keepSelector adds the labels app and istio to the values of the chart gateway, unless the values have them. The
// manifests of an IstioOperator give all gateways of a kind the same two labels, by which Gateways select them. The
// chart gateway derives both labels from the gateway's name.
func keepSelector(root *yaml.Node, ofAll string) {
	if scalar(root, "name") == ofAll {
		return
	}
	putAt(root, "labels.app", &yaml.Node{}, &yaml.Node{Kind: yaml.ScalarNode, Value: ofAll})
	putAt(root, "labels.istio", &yaml.Node{}, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimPrefix(ofAll, "istio-")})
}

// settings takes settings whose places in a chart are known.
func (o *operator) settings(n *yaml.Node, path string, to *yaml.Node, places map[string]string) {
	var walk func(n *yaml.Node, path, name string)
	walk = func(n *yaml.Node, path, name string) {
		each(n, func(key, n *yaml.Node) {
			name, path := strings.TrimPrefix(name+"."+key.Value, "."), path+"."+key.Value
			below := slices.ContainsFunc(slices.Collect(maps.Keys(places)), func(p string) bool { return strings.HasPrefix(p, name+".") })
			switch place := places[name]; {
			case place != "":
				putAt(to, place, key, n)
			case name == "env":
				o.environment(n, to)
			case name == "enabled":
			case name == "hpaSpec.scaleTargetRef": // the chart names its own Deployment
			case name == "strategy.type" && n.Value == "RollingUpdate":
			case name == "overlays":
				for i, overlay := range n.Content {
					o.add(overlay, true, fmt.Sprintf("%s[%d] has no effect here: it patches %s %s of Istio's chart", path, i,
						scalar(overlay, "kind"), scalar(overlay, "name")), "make the same patch by a post-renderer of Helm, if no value does it")
				}
			case below && n.Kind == yaml.MappingNode:
				walk(n, path, name)
			case !empty(n):
				o.add(key, true, path+" has no place in the chart", "make the same change by a post-renderer of Helm")
			}
		})
	}
	walk(n, path, "")
}

// environment turns a list of variables into the values of a chart.
func (o *operator) environment(list, to *yaml.Node) {
	var from []*yaml.Node
	for _, x := range list.Content {
		name := get(x, "name")
		if name == nil {
			continue
		}
		if value := get(x, "value"); value != nil {
			putAt(to, "env."+name.Value, name, value)
		} else if get(x, "valueFrom") != nil {
			from = append(from, x)
		}
	}
	if from != nil {
		putAt(to, "envVarFrom", list, &yaml.Node{Kind: yaml.SequenceNode, Line: list.Line, Content: from})
	}
}

// releases returns the releases that take the place of the IstioOperator.
func (o *operator) releases() (list []*release) {
	for _, r := range []*release{{chart: "base", root: o.base}, {chart: "cni", root: o.cni}, {chart: "istiod", root: o.istiod}} {
		if slices.Contains(o.installed, r.chart) {
			r.file, r.profile = o.file, o.profile
			list = append(list, r)
		}
	}
	if revision := get(o.istiod, "revision"); revision != nil {
		for _, r := range o.gateways {
			putAt(r.root, "revision", revision, revision)
		}
	}
	list = append(list, o.gateways...)
	passGlobal(list, get(o.istiod, "global"))
	return list
}
