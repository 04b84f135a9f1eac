package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// wrapped returns the values of charts that an object of a tool for deployment has: a HelmRelease of Flux, an
// Application of Argo CD, or an Istio, IstioRevision or IstioCNI of the Sail operator. ok is false for other objects.
func wrapped(root *yaml.Node, file string) (list []*release, ok bool, err error) {
	spec, name := get(root, "spec"), scalar(root, "metadata", "name")
	group, _, _ := strings.Cut(scalar(root, "apiVersion"), "/")
	add := func(chart string, values *yaml.Node) {
		if values == nil {
			values = mapping(root)
		}
		if chart == "istio-discovery" {
			chart = "istiod"
		}
		if chart == "gateway" || oldGateways()[chart] != "" {
			list = append(list, &release{chart: chart, name: name, file: file, root: values})
			return
		}
		list = append(list, &release{chart: chart, file: file, root: values})
	}
	switch kind := scalar(root, "kind"); {
	case kind == "HelmRelease" && group == "helm.toolkit.fluxcd.io":
		add(scalar(spec, "chart", "spec", "chart"), get(spec, "values"))
	case kind == "Application" && group == "argoproj.io":
		sources := elements(spec, "sources")
		if one := get(spec, "source"); one != nil {
			sources = append(sources, one)
		}
		for _, source := range sources {
			chart := scalar(source, "chart")
			if chart == "" {
				chart = scalar(source, "path")
				chart = chart[strings.LastIndexByte(chart, '/')+1:]
			}
			values, err := argoValues(get(source, "helm"), file)
			if err != nil {
				return nil, false, err
			}
			add(chart, values)
		}
	case (kind == "Istio" || kind == "IstioRevision" || kind == "IstioCNI") && group == "sailoperator.io":
		values := mapping(root)
		fill(values, get(spec, "values"))
		if profile := get(spec, "profile"); profile != nil && kind != "IstioCNI" {
			putAt(values, "profile", profile, profile)
		}
		if kind == "IstioCNI" {
			values = mapping(root)
			fill(values, get(spec, "values", "cni"))
			add("cni", values)
		} else {
			add("istiod", values)
		}
	default:
		return nil, false, nil
	}
	for _, r := range list {
		if !slices.Contains(chartNames(), r.chart) {
			return nil, false, fmt.Errorf("%s:%d: chart %q is not one of Istio's: write CHART=FILE with its values alone", file, root.Line, r.chart)
		}
	}
	return list, true, nil
}

// argoValues returns the values that an Application of Argo CD gives to Helm. Parameters are in force before an object
// with values, and this before a text.
func argoValues(helm *yaml.Node, file string) (*yaml.Node, error) {
	values := mapping(helm)
	for _, p := range elements(helm, "parameters") {
		name, value := get(p, "name"), get(p, "value")
		if name == nil || value == nil {
			continue
		}
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: value.Value, Line: value.Line}
		if cmp.Or(scalar(p, "forceString"), "false") == "true" {
			n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
		}
		putAt(values, name.Value, name, n)
	}
	fill(values, get(helm, "valuesObject"))
	if text := get(helm, "values"); text != nil && text.Kind == yaml.ScalarNode {
		r, err := releaseFrom("", file, []byte(text.Value))
		if err != nil {
			return nil, err
		}
		moved(r.root, text.Line)
		fill(values, r.root)
	}
	return values, nil
}

// moved adds to the line of all nodes of a tree.
func moved(n *yaml.Node, lines int) {
	n.Line += lines
	for _, child := range n.Content {
		moved(child, lines)
	}
}
