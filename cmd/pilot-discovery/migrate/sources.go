package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// ofRunning is the line of values that come from objects which run, and not from values of the user.
const ofRunning = -1

// releaseFrom returns the values of a chart in a text.
func releaseFrom(chart, file string, text []byte) (*release, error) {
	if err := checkText(file, text); err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	left := mostOfValues
	if err := checkTree(file, &doc, &left); err != nil {
		return nil, err
	}
	r := &release{chart: chart, file: file, root: &yaml.Node{Kind: yaml.MappingNode}}
	if len(doc.Content) > 0 && doc.Content[0].Kind == yaml.MappingNode {
		r.root = resolved(doc.Content[0])
	}
	r.root.Style &^= yaml.FlowStyle
	return r, nil
}

// releaseOf returns the values that running objects have.
func releaseOf(r *running, chart string) (*release, error) {
	text, err := sigsyaml.Marshal(r.values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.workload.Named(), err)
	}
	of, err := releaseFrom(chart, r.workload.Named(), text)
	if err != nil {
		return nil, err
	}
	withLine(of.root, ofRunning)
	of.points, of.observed = r.points, true
	return of, nil
}

// clusterReleases returns the values of all releases of a cluster, in the order in which they are installed: of Istio's
// charts, or of this project's if back is true. It takes the values from Helm, else from the ConfigMap in which Istio's
// chart keeps them, else from the objects that run. revision restricts the control planes, if it is not empty. given
// has values of IstioOperators, which are used before that ConfigMap and what runs.
func (h *helmStore) clusterReleases(of objects, given []*release, back bool, revision string) (list []*release, err error) {
	list = slices.Clone(given)
	stored := map[string]*release{} // of the chart istiod, by the key of the release
	for _, key := range slices.Sorted(maps.Keys(h.releases)) {
		s := h.releases[key]
		if s.own() != back {
			continue
		}
		made, err := s.values()
		if err != nil {
			return nil, err
		}
		for _, r := range made {
			if r.chart == "istiod" {
				stored[key] = r
			} else {
				list = append(list, r)
			}
		}
	}
	for _, t := range of.all {
		c, ok := discoveryOf(t)
		if !ok || version.Own(t.GetLabels()) != back || revision != "" && revisionOf(t) != revision {
			continue
		}
		key := t.GetNamespace() + "/" + releaseName(t)
		r := stored[key]
		delete(stored, key)
		operated := false
		if r == nil && !back {
			if r = givenFor(t, given); r != nil {
				operated = true
			} else if r, err = chartValues(t, of); err != nil {
				return nil, err
			}
		}
		found := istiodValues(t, c, of, r == nil, back)
		observed, err := releaseOf(found, "istiod")
		if err != nil {
			return nil, err
		}
		if r == nil {
			r = observed
		} else {
			r.running = observed
		}
		r.name, r.back = t.Named(), back
		if !operated { // else it is in the list
			list = append(list, r)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) { // of a remote cluster, which runs no control plane
		if revision == "" || cmp.Or(scalar(stored[key].root, "revision"), "default") == revision {
			list = append(list, stored[key])
		}
	}
	gateways, err := h.gatewaysOf(of, given, back)
	if err != nil {
		return nil, err
	}
	list = append(list, gateways...)
	slices.SortStableFunc(list, func(a, b *release) int {
		order := []string{"base", "cni", "ztunnel", "istiod", "gateway", "istio-ingress", "istio-egress"}
		return cmp.Compare(slices.Index(order, a.chart), slices.Index(order, b.chart))
	})
	for _, r := range list {
		r.back = back
	}
	return list, nil
}

// releaseName returns the name of the release of Helm that made an object.
func releaseName(t migration.Object) string {
	return cmp.Or(t.GetAnnotations()["meta.helm.sh/release-name"], t.GetLabels()["release"], t.GetLabels()[names.LabelAppInstance])
}

// chartValues returns the values of the user that Istio's chart keeps in a ConfigMap, or nil if there is none.
func chartValues(t migration.Object, of objects) (*release, error) {
	name := "values"
	if revision := revisionOf(t); revision != "default" {
		name += "-" + revision
	}
	m := of.named("ConfigMap", t.GetNamespace(), name)
	if m == nil || m.GetLabels()[names.LabelRevision] == "" || m.Field("data", "original-values") == "" {
		return nil, nil
	}
	r, err := releaseFrom("istiod", m.Named(), []byte(m.Field("data", "original-values")))
	if err == nil {
		plain(r.root)
	}
	return r, err
}

// lift moves the values below pilot to the top, where they mean the same and are in force.
func (j *valueJudge) lift() {
	pilot := get(j.root, "pilot")
	if pilot == nil || pilot.Kind != yaml.MappingNode {
		return
	}
	root := mapping(j.root)
	fill(root, pilot)
	each(j.root, func(key, n *yaml.Node) {
		if key.Value != "pilot" {
			put(root, key, n)
		}
	})
	j.root = root
}

// addRunning adds what a control plane has beyond the values of its release, such as patches and edited objects.
func (j *valueJudge) addRunning() {
	if j.running == nil {
		return
	}
	j.lift()
	if tracer := scalar(j.root, "global", "proxy", "tracer"); tracer != "" && tracer != "none" {
		remove(get(j.running.root, "meshConfig", "defaultConfig"), "tracing") // the chart wrote it
	}
	if cmp.Or(scalar(j.root, "global", "variant"), scalar(j.root, "global", "proxy", "variant")) != "" {
		remove(get(j.running.root, "meshConfig", "defaultConfig"), "image")
	}
	for variable, place := range ofVariables() {
		if get(j.root, "env", variable) != nil {
			removeAt(j.running.root, place)
		}
	}
	env := get(j.running.root, "env")
	if taint := get(j.root, "taint"); on(taint, false) {
		for variable, text := range map[string]string{"PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": "true",
			"PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME": scalar(taint, "name")} {
			if scalar(env, variable) == text { // the chart wrote it
				removeAt(j.running.root, "env."+variable)
			}
		}
	}
	each(get(j.root, "pdb"), func(key, n *yaml.Node) { // an alias of podDisruptionBudget
		if runs := get(j.running.root, "podDisruptionBudget", key.Value); runs != nil && sameScalar(n, runs) {
			removeAt(j.running.root, "podDisruptionBudget."+key.Value)
		}
	})
	if scalar(j.root, "global", "platform") != "" {
		remove(j.running.root, "platform")
	}
	if get(j.root, "telemetry") != nil {
		remove(j.running.root, "telemetry")
	}
	for _, place := range []string{"env", "meshConfig"} {
		j.compare(place, get(j.root, place), get(j.running.root, place))
	}
	if added := append(j.addNamed(), fill(j.root, j.running.root)...); len(added) > 0 {
		j.points = append(j.points, migration.Point{Where: j.running.file,
			Text: fmt.Sprintf("%s: it runs with %s, which the values of %s do not set", j.running.file, strings.Join(added, ", "), j.file),
			Fix:  "-o values writes out what has an effect here"})
	}
	j.points = append(j.points, j.running.points...)
}

// addNamed adds the elements of lists that run and whose names the values do not have, and returns their paths.
func (j *valueJudge) addNamed() (added []string) {
	for _, list := range []string{"envVarFrom", "volumes", "volumeMounts"} {
		own := get(j.root, list)
		if own == nil || own.Kind != yaml.SequenceNode {
			continue
		}
		for _, x := range elements(j.running.root, list) {
			same := func(n *yaml.Node) bool { return scalar(n, "name") == scalar(x, "name") }
			if !slices.ContainsFunc(own.Content, same) {
				own.Content, added = append(own.Content, x), append(added, fmt.Sprintf("%s[%s]", list, scalar(x, "name")))
			}
		}
	}
	return added
}

// compare adds a point for each value that runs with another value than the release says.
func (j *valueJudge) compare(path string, says, runs *yaml.Node) {
	each(runs, func(key, n *yaml.Node) {
		own, name := get(says, key.Value), path+"."+key.Value
		switch {
		case own == nil:
		case n.Kind == yaml.MappingNode:
			j.compare(name, own, n)
		case n.Kind == yaml.ScalarNode && own.Kind == yaml.ScalarNode && !sameScalar(own, n):
			j.points = append(j.points, migration.Point{InTheWay: true, Where: j.running.file,
				Text: fmt.Sprintf("%s: it runs with %s=%s, and the values of %s say %s", j.running.file, name, n.Value, j.file, own.Value),
				Fix:  "decide for one of them; -o values writes what the release says"})
		}
	})
}

// sameScalar reports whether two scalars mean the same to a chart that writes them as a text.
func sameScalar(a, b *yaml.Node) bool {
	var x, y any
	return a.Value == b.Value || a.Decode(&x) == nil && b.Decode(&y) == nil && sameValue(x, y)
}
