package migrate

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/charts"
)

//go:embed defaults.yaml
var istioDefaults []byte

// withoutDefaults removes the values that the installed chart has by default. Where the defaults of the two charts
// differ, a value of the user may be equal to a part of the other chart's default, so it is left out as a whole or not
// at all.
func (r *running) withoutDefaults(chart string) {
	var theirs map[string]map[string]any
	if err := sigsyaml.Unmarshal(istioDefaults, &theirs); err != nil {
		panic(err) // unreachable: the file is part of the program, and the tests of running control planes read it
	}
	text, err := charts.Values.ReadFile(chart + "/values.yaml")
	var own map[string]any
	if err == nil {
		err = sigsyaml.Unmarshal(text, &own)
	}
	if err != nil {
		panic(err) // unreachable, as above
	}
	if r.back {
		own["podDisruptionBudget"] = map[string]any{"maxUnavailable": 1} // the template fills it in
	}
	for name, usual := range theirs[chart] {
		if name == "global" {
			continue
		}
		if r.back {
			usual = own[name]
		}
		delete(own, name)
		part, isMap := r.values[name].(map[string]any)
		usualPart, both := usual.(map[string]any)
		switch {
		case isMap && both && !r.injected: // a release has the rest
			subtract(part, usualPart)
			if len(part) == 0 {
				delete(r.values, name)
			}
		case sameTree(r.values[name], usual):
			delete(r.values, name)
		}
	}
	subtract(r.values, map[string]any{"global": theirs[chart]["global"]})
	subtract(r.values, own)
}

// subtract removes the values of a map that another map has too.
func subtract(from, defaults map[string]any) {
	for name, value := range from {
		usual, known := defaults[name]
		part, isMap := value.(map[string]any)
		switch usualPart, both := usual.(map[string]any); {
		case !known:
		case isMap && both:
			subtract(part, usualPart)
			if len(part) == 0 {
				delete(from, name)
			}
		case sameTree(value, usual):
			delete(from, name)
		}
	}
}

// sameTree reports whether two trees of values mean the same.
func sameTree(a, b any) bool {
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if !isMap || !both {
		return !isMap && !both && sameValue(a, b)
	}
	return maps.EqualFunc(x, y, sameTree)
}

// sameValue reports whether two values mean the same, also as quantities of Kubernetes.
func sameValue(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if x == y {
		return true
	}
	p, err := resource.ParseQuantity(x)
	q, other := resource.ParseQuantity(y)
	return err == nil && other == nil && p.Cmp(q) == 0
}

// prune removes empty values, as a rendered chart has them for values that are not set.
func prune(m map[string]any) {
	for name, value := range m {
		if slices.Contains([]string{"injectedAnnotations", "lifecycle", "templates"}, name) { // their parts may be empty on purpose
			continue
		}
		switch v := value.(type) {
		case nil:
			delete(m, name)
		case string:
			if v == "" {
				delete(m, name)
			}
		case []any:
			if len(v) == 0 {
				delete(m, name)
			}
		case map[string]any:
			if prune(v); len(v) == 0 {
				delete(m, name)
			}
		}
	}
}

// asMaps returns the maps of a list.
func asMaps(list any) (out []map[string]any) {
	all, _ := list.([]any)
	for _, x := range all {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// without returns a list without some of its maps.
func without(list any, some func(map[string]any) bool) (out []any) {
	for _, x := range asMaps(list) {
		if !some(x) {
			out = append(out, x)
		}
	}
	return out
}

// number returns the number that a text stands for, or the text.
func number(text string) any {
	var n yaml.Node
	if yaml.Unmarshal([]byte(text), &n) == nil && len(n.Content) == 1 {
		var value any
		if n.Content[0].Decode(&value) == nil {
			switch value.(type) {
			case int, float64:
				return value
			}
		}
	}
	return text
}

// ownLabels returns the labels that neither a chart nor Kubernetes nor a tool for deployment sets.
func ownLabels(all map[string]string) map[string]any {
	return unlike(all, []string{"app", "istio", "release", "chart", "heritage", names.LabelRevision, names.LabelInject, names.LabelDataplane,
		"pod-template-hash", "helm.sh/chart"}, "app.kubernetes.io/", "operator.istio.io/", "install.operator.istio.io/")
}

// ownAnnotations returns the annotations that neither a chart nor Kubernetes nor a tool for deployment sets.
func ownAnnotations(all map[string]string) map[string]any {
	return unlike(all, []string{"prometheus.io/port", "prometheus.io/scrape", names.LabelInject, names.AnnotationLastApplied,
		names.AnnotationRestarted, names.AnnotationDeploymentRevision}, "meta.helm.sh/")
}

// unlike returns the labels whose names are not in a list and have none of some prefixes.
func unlike(all map[string]string, listed []string, prefixes ...string) map[string]any {
	prefixes = append(prefixes, "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/")
	out := map[string]any{}
	for name, value := range all {
		if !slices.Contains(listed, name) && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out[name] = value
		}
	}
	return out
}
