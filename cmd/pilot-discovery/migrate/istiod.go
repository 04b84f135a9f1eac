package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// discoveryOf returns the container of a Deployment that runs a control plane.
func discoveryOf(t migration.Object) (container map[string]any, ok bool) {
	if t.GetKind() != "Deployment" {
		return nil, false
	}
	for _, c := range t.List("spec", "template", "spec", "containers") {
		if c["name"] == "discovery" {
			return c, true
		}
	}
	return nil, false
}

func revisionOf(t migration.Object) string {
	return cmp.Or(t.GetLabels()[names.LabelRevision], "default")
}

// revisionsOf returns the revisions of running istiods, sorted, or those of this project's control planes.
func revisionsOf(around []migration.Object, own bool) (list []string) {
	for _, t := range around {
		if _, ok := discoveryOf(t); ok && version.Own(t.GetLabels()) == own {
			list = append(list, revisionOf(t))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// addIstiod adds points about a control plane that runs: its version, its environment, its arguments and its CA.
// secrets says whether the Secrets of its namespace are among the objects.
func (f *flags) addIstiod(v *migration.Verdict, t migration.Object, c map[string]any, around []migration.Object, secrets bool) {
	image, _ := c["image"].(string)
	if own := version.Own(t.GetLabels()); own || f.back {
		what := "istiod already"
		if own && f.back {
			what = "the control plane to move back from"
		} else if own {
			what = "this control plane already"
		}
		v.Add("control planes", migration.Point{Text: fmt.Sprintf("%s is %s, of revision %s, %s", t.Named(), what, revisionOf(t), image)})
		return
	}
	p := migration.Point{Text: fmt.Sprintf("%s is the control plane of revision %s, %s", t.Named(), revisionOf(t), image)}
	if of := minorOf(image); of != "" && of != minorOf(version.APILevel) {
		p.Fix = fmt.Sprintf("it is of Istio %s, but the verdict is about %s: read the change notes between them, or upgrade it first", of,
			minorOf(version.APILevel))
	}
	v.Add("control planes", p)
	args, _, _ := unstructured.NestedStringSlice(c, "args")
	is := environmentOf(c, t.GetNamespace(), around)
	list, e := judgeEnvironment(is, args)
	for _, s := range list {
		s.Where = t.Named()
		v.Add(s.section, s.Point)
	}
	pod, _, _ := unstructured.NestedMap(t.Object, "spec", "template", "spec")
	addMountedCA(v, pod, e, t.Named())
	addAuthority(v, around, e, t.GetNamespace(), secrets)
}

// scopeGateways reports whether an istiod among the objects limits Gateways to their own namespaces.
func scopeGateways(objects []migration.Object) bool {
	return slices.ContainsFunc(objects, func(o migration.Object) bool {
		c, ok := discoveryOf(o)
		if !ok || version.Own(o.GetLabels()) {
			return false
		}
		e := env.New(environmentOf(c, o.GetNamespace(), objects).known)
		return e.Restricted(names.ScopeGatewaysVariable)
	})
}

// minorVersion matches the first two numbers of a version, also in the tag of an image.
var minorVersion = regexp.MustCompile(`(?:^|:)(\d+\.\d+)(?:\.|-|$)`)

// minorOf returns the first two numbers of the version of an image, or of a version. It returns "" if there are none.
func minorOf(image string) string {
	image = image[strings.LastIndexByte(image, '/')+1:] // skip the registry's port
	if m := minorVersion.FindStringSubmatch(image); m != nil {
		return m[1]
	}
	return ""
}

// chartTemplates are the injection templates in Istio's chart.
var chartTemplates = []string{"sidecar", "gateway", "grpc-simple", "grpc-agent", "waypoint", "kube-gateway", "agentgateway",
	"agentgateway-waypoint"}

// addTemplates adds a point for each template of a ConfigMap of one of the istiods that is not in Istio's chart.
func addTemplates(v *migration.Verdict, t migration.Object, istiods []string) {
	if !slices.ContainsFunc(istiods, func(revision string) bool { return t.GetName() == injector.MapName(revision) }) {
		return
	}
	var config struct{ Templates map[string]string }
	if err := sigsyaml.Unmarshal([]byte(t.Field("data", injector.ConfigKey)), &config); err != nil {
		v.Add("wrong already", migration.Point{Text: t.Named() + ": " + err.Error(), Where: t.Named()})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(config.Templates)) {
		if !slices.Contains(chartTemplates, name) {
			v.Add("templates of injection", migration.Point{InTheWay: true,
				Text: fmt.Sprintf("template %s of %s is not the chart's", name, t.Named()),
				Fix:  "add it to this control plane's chart by sidecarInjectorWebhook.templates." + name, Where: t.Named()})
		}
	}
}
