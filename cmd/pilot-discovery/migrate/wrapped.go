package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// wrapper takes values of charts out of an object of a tool for deployment.
type wrapper struct {
	file string
	root *yaml.Node // the object
	list []*release
}

// wrapped returns the values of charts that an object of a tool for deployment has: a HelmRelease of Flux, an
// Application of Argo CD, a HelmChart of k3s, or an Istio, IstioRevision or IstioCNI of the Sail operator. ok is false
// for other objects.
func wrapped(root *yaml.Node, file string) (list []*release, ok bool, err error) {
	w := &wrapper{file: file, root: root}
	group, _, _ := strings.Cut(scalar(root, "apiVersion"), "/")
	switch kind := scalar(root, "kind"); {
	case kind == "HelmRelease" && group == "helm.toolkit.fluxcd.io":
		err = w.flux(get(root, "spec"))
	case kind == "Application" && group == "argoproj.io":
		sources := elements(get(root, "spec"), "sources")
		if one := get(root, "spec", "source"); one != nil {
			sources = append(sources, one)
		}
		for _, source := range sources {
			if err = w.argo(source); err != nil {
				break
			}
		}
	case kind == "HelmChart" && group == "helm.cattle.io":
		err = w.k3s(get(root, "spec"))
	case (kind == "Istio" || kind == "IstioRevision" || kind == "IstioCNI") && group == "sailoperator.io":
		err = w.sail(get(root, "spec"), kind)
	default:
		return nil, false, nil
	}
	return w.list, true, err
}

// add adds the values of a chart.
func (w *wrapper) add(chart, name string, values *yaml.Node, points ...migration.Point) error {
	if chart == "istio-discovery" {
		chart = "istiod"
	}
	if !slices.Contains(chartNames(), chart) {
		return fmt.Errorf("%s:%d: chart %q is not one of Istio's: write CHART=FILE with its values alone", w.file, w.root.Line, chart)
	}
	values.Style &^= yaml.FlowStyle // which would make one long line
	r := &release{chart: chart, file: w.file, root: values, points: points}
	if chart == "gateway" || oldGateways()[chart] != "" {
		r.name = name
	}
	w.list = append(w.list, r)
	return nil
}

// elsewhere returns a point for each field of an object that names values which the object does not have.
func (w *wrapper) elsewhere(of *yaml.Node, fields ...string) (points []migration.Point) {
	each(of, func(key, n *yaml.Node) {
		if slices.Contains(fields, key.Value) && len(n.Content) > 0 {
			points = append(points, migration.Point{InTheWay: true, Where: fmt.Sprintf("%s:%d", w.file, key.Line),
				Text: key.Value + " names values that are in other files or objects: they were not read",
				Fix:  "add them to the values that -o values writes"})
		}
	})
	return points
}

// object returns the values in a field of an object, or none.
func (w *wrapper) object(n *yaml.Node) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return mapping(w.root)
	}
	return n
}

// text returns the values in a text of an object, with the lines of the object's file.
func (w *wrapper) text(n *yaml.Node) (*yaml.Node, error) {
	if n == nil || n.Kind != yaml.ScalarNode {
		return mapping(w.root), nil
	}
	r, err := releaseFrom("", w.file, []byte(n.Value))
	if err != nil {
		return nil, err
	}
	moved(r.root, n.Line)
	return r.root, nil
}

// set sets one parameter. A name that Helm does not take is a point.
func (w *wrapper) set(values, name, n *yaml.Node) []migration.Point {
	steps, err := stepsOf(name.Value)
	if err == nil {
		err = setAt(values, steps, name, n)
	}
	if err == nil {
		return nil
	}
	return []migration.Point{{InTheWay: true, Where: fmt.Sprintf("%s:%d", w.file, name.Line),
		Text: fmt.Sprintf("the parameter %q is refused: %v", name.Value, err), Fix: "correct its name, as --set of Helm takes it"}}
}

// flux takes the values of a HelmRelease.
func (w *wrapper) flux(spec *yaml.Node) error {
	values := w.object(get(spec, "values"))
	points := append(w.elsewhere(spec, "valuesFrom"), w.elsewhere(get(spec, "chart", "spec"), "valuesFiles")...)
	each(spec, func(key, n *yaml.Node) {
		if key.Value == "postRenderers" && len(n.Content) > 0 {
			points = append(points, migration.Point{InTheWay: true, Where: fmt.Sprintf("%s:%d", w.file, key.Line),
				Text: "postRenderers has no effect here: it patches objects of Istio's chart",
				Fix:  "keep it in the release of this chart, if no value does the same"})
		}
	})
	chart := lastPart(scalar(spec, "chart", "spec", "chart"))
	if ref := get(spec, "chartRef"); ref != nil {
		chart = scalar(ref, "name")
		if !slices.Contains(chartNames(), chart) {
			chart = releasesOf(values, w.file)[0].chart
			points = append(points, migration.Point{Where: fmt.Sprintf("%s:%d", w.file, ref.Line),
				Text: fmt.Sprintf("chartRef names %s %s, which was not read: the values are taken for the chart %s, by their names",
					scalar(ref, "kind"), scalar(ref, "name"), chart),
				Fix: "if it is another chart, write CHART=FILE with its values alone"})
		}
	}
	name := scalar(w.root, "metadata", "name")
	if target := scalar(spec, "targetNamespace"); target != "" {
		name = target + "-" + name
	}
	return w.add(chart, cmp.Or(scalar(spec, "releaseName"), name), values, points...)
}

// argo takes the values of a source of an Application. Parameters are in force before an object with values, and Argo
// CD does not read the text if there is an object.
func (w *wrapper) argo(source *yaml.Node) error {
	helm := get(source, "helm")
	chart := lastPart(cmp.Or(scalar(source, "chart"), scalar(source, "path")))
	if chart == "" && scalar(source, "ref") != "" { // a repository with files of values for the other sources
		return nil
	}
	points := w.elsewhere(helm, "valueFiles", "fileParameters")
	values, err := w.text(get(helm, "values"))
	if err != nil {
		return err
	}
	if object := get(helm, "valuesObject"); object != nil && object.Kind == yaml.MappingNode {
		if len(values.Content) > 0 {
			points = append(points, migration.Point{Where: fmt.Sprintf("%s:%d", w.file, get(helm, "values").Line),
				Text: "values has no effect: Argo CD does not read it beside valuesObject", Fix: "remove it"})
		}
		values = object
	}
	for _, p := range elements(helm, "parameters") {
		name, value := get(p, "name"), cmp.Or(get(p, "value"), &yaml.Node{})
		if name == nil {
			continue
		}
		n := typed(value.Value, cmp.Or(value.Line, name.Line))
		if scalar(p, "forceString") == "true" {
			n = quoted(unescaped(value.Value, 0)[0], cmp.Or(value.Line, name.Line))
		}
		points = append(points, w.set(values, name, n)...)
	}
	return w.add(chart, cmp.Or(scalar(helm, "releaseName"), scalar(w.root, "metadata", "name")), values, points...)
}

// chartArchive matches the version and the extension of the archive of a chart.
var chartArchive = regexp.MustCompile(`-v?\d+\.\d+.*\.tgz$`)

// k3s takes the values of a HelmChart. Its fields set and values are in force before the text.
func (w *wrapper) k3s(spec *yaml.Node) error {
	points := w.elsewhere(spec, "valuesSecrets")
	text, err := w.text(get(spec, "valuesContent"))
	if err != nil {
		return err
	}
	values := w.object(get(spec, "values"))
	fill(values, text)
	each(get(spec, "set"), func(key, n *yaml.Node) {
		value := quoted(unescaped(n.Value, 0)[0], n.Line)
		if n.ShortTag() == "!!int" || slices.Contains([]string{"true", "false", "null"}, strings.ToLower(n.Value)) {
			value = typed(n.Value, n.Line)
		}
		points = append(points, w.set(values, key, value)...)
	})
	chart := chartArchive.ReplaceAllString(lastPart(scalar(spec, "chart")), "")
	return w.add(chart, scalar(w.root, "metadata", "name"), values, points...)
}

// sail takes the values of an object of the Sail operator.
func (w *wrapper) sail(spec *yaml.Node, kind string) error {
	values := mapping(w.root)
	if kind == "IstioCNI" {
		fill(values, get(spec, "values", "cni"))
		return w.add("cni", "", values)
	}
	fill(values, get(spec, "values"))
	if profile := get(spec, "profile"); profile != nil {
		putAt(values, "profile", profile, profile)
	}
	return w.add("istiod", "", values)
}

// lastPart returns the part of a path behind the last slash.
func lastPart(path string) string {
	path = strings.TrimSuffix(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// moved adds to the line of all nodes of a tree.
func moved(n *yaml.Node, lines int) {
	n.Line += lines
	for _, child := range n.Content {
		moved(child, lines)
	}
}
