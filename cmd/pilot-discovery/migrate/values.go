package migrate

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/api/yaml11"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// release is the values of one chart.
type release struct {
	chart   string // of this tree, or one of Istio's: used as it is, such as cni, or old, such as istio-ingress
	name    string // the release's name, if the file says it
	file    string
	root    *yaml.Node
	profile *yaml.Node // names the profile; nil if there is none. Values that it sets have no line
	global  bool       // whether the values below global are judged in another release

	back     bool              // whether the values are for Istio's chart
	observed bool              // whether the values are of objects that run
	running  *release          // the values that the same control plane runs with; nil if they are not known
	points   []migration.Point // about what runs and has no place in the chart
	parent   bool              // the values are in the file of a parent chart, which may have names of its own below global
}

// inCluster reports whether the control plane runs, so that the verdict about its objects names the variables and the
// fields of the mesh configuration that have no effect.
func (r *release) inCluster() bool { return r.observed || r.running != nil }

// section is the section of the verdict about a release.
func (r *release) section() string {
	if r.name != "" {
		return fmt.Sprintf("values of chart %s for %s", r.chart, r.name)
	}
	return "values of chart " + r.chart
}

// readValues reads a file with values of one of Istio's charts, or with IstioOperators. The name of the chart may stand
// before the file, as in cni=values.yaml.
func readValues(text string, in io.Reader) (list []*release, points []migration.Point, err error) {
	chart, file, found := strings.Cut(text, "=")
	if !found || !slices.Contains(chartNames(), chart) {
		chart, file = "", text
	}
	var data []byte
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		in = f
	}
	if data, err = io.ReadAll(io.LimitReader(in, limits.Default().FileSize+1)); err == nil {
		err = checkText(file, data)
	}
	if err != nil {
		return nil, nil, err
	}
	left := mostOfValues
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if err := d.Decode(&doc); err == io.EOF {
			return list, points, nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := checkTree(file, &doc, &left); err != nil {
			return nil, nil, err
		}
		if err := doc.Decode(new(any)); err != nil { // an alias that contains itself, among others
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		root := resolved(doc.Content[0])
		switch {
		case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
			continue
		case root.Kind != yaml.MappingNode:
			return nil, nil, fmt.Errorf("%s:%d: write values, as for Istio's charts, or an IstioOperator", file, root.Line)
		case scalar(root, "kind") == "IstioOperator":
			o := &operator{file: file}
			o.read(root)
			list, points = append(list, o.releases()...), append(points, o.points...)
			continue
		case scalar(root, "apiVersion") != "" && scalar(root, "kind") != "" && chart == "":
			made, ok, err := wrapped(root, file)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				list = append(list, made...)
				continue
			}
			return nil, nil, fmt.Errorf("%s:%d: this is a %s: name objects by -f, and files of values by --values", file, root.Line,
				scalar(root, "kind"))
		}
		if chart != "" {
			list = append(list, &release{chart: chart, file: file, root: root})
			continue
		}
		list = append(list, releasesOf(root, file)...)
	}
}

// chartNames returns the charts whose values are judged.
func chartNames() []string {
	return []string{"istiod", "gateway", "base", "cni", "ztunnel", "istio-ingress", "istio-egress"}
}

// releasesOf returns the releases in values: several if they are for a parent chart, in which the name of each chart is
// a key. Otherwise it is the chart that has the most of their names.
func releasesOf(root *yaml.Node, file string) (list []*release) {
	if get(root, "istiod") != nil || get(root, "gateway") != nil {
		var others []migration.Point
		each(root, func(key, n *yaml.Node) {
			switch {
			case slices.Contains(chartNames(), key.Value) && n.Kind == yaml.MappingNode:
				list = append(list, &release{chart: key.Value, file: file, root: n, parent: true})
			case key.Value != "global" && key.Value != "tags":
				others = append(others, migration.Point{
					Text: key.Value + " is left out: no chart of Istio has this name, so it stays among the values of the parent chart",
					Fix:  "if it is another name of one, write CHART=FILE with its values alone", Where: fmt.Sprintf("%s:%d", file, key.Line),
				})
			}
		})
		if len(list) > 0 {
			list[0].points = others
		}
		passGlobal(list, get(root, "global"))
		return list
	}
	cni := []string{"cniBinDir", "cniConfDir", "cniConfFileName", "cniNetnsDir", "chained", "repair", "excludeNamespaces"}
	if slices.ContainsFunc(cni, func(name string) bool { return get(root, name) != nil }) {
		return []*release{{chart: "cni", file: file, root: root}}
	}
	ofBase := [][]string{{"base", "enableCRDTemplates"}, {"base", "excludedCRDs"}, {"base", "enableIstioConfigCRDs"},
		{"global", "enableReaderRBAC"}}
	order := []string{"istiod", "gateway", "base"}
	if slices.ContainsFunc(ofBase, func(path []string) bool { return get(root, path...) != nil }) {
		order = []string{"base", "istiod", "gateway"}
	}
	best, most := "", -1
	for _, chart := range order {
		s, err := schemaOf(chart)
		if err != nil {
			continue
		}
		n := 0
		for i := 0; i+1 < len(root.Content); i += 2 {
			if _, ok := s.property(root.Content[i].Value); ok {
				n++
			}
		}
		if n > most {
			best, most = chart, n
		}
	}
	return []*release{{chart: best, file: file, root: root}}
}

// passGlobal adds values of a parent to the values below global of each release. The release of istiod is judged with
// them, because it knows most of them.
func passGlobal(list []*release, global *yaml.Node) {
	if global == nil {
		return
	}
	judged := max(0, slices.IndexFunc(list, func(r *release) bool { return r.chart == "istiod" }))
	for i, r := range list {
		root := mapping(r.root)
		putAt(root, "global", global, global)
		fill(root, r.root)
		r.root, r.global = root, i != judged
	}
}

// valueJudge judges the values of one release.
type valueJudge struct {
	*release
	working int                 // number of values that work as they are written
	added   []string            // values that the profile sets
	dropped map[*yaml.Node]bool // keys of values that have no place in the chart
}

// judge returns points about the values of a release, and marks the keys that are left out of the chart's values.
func (r *release) judge() (*valueJudge, error) {
	j := &valueJudge{release: r, dropped: map[*yaml.Node]bool{}}
	if r.back {
		j.judgeBack()
		return j, nil
	}
	switch r.chart {
	case "ztunnel":
		j.add(r.root, migration.Point{InTheWay: true, Text: "the chart ztunnel belongs to an ambient mesh, which is not supported",
			Fix: "give these workloads sidecars first"})
		j.drop(r.root)
		return j, nil
	case "cni":
		j.walk(r.root, nil, nil)
		j.points = append(j.points, migration.Point{Text: "Istio's chart cni serves this control plane too: keep its release"})
		return j, nil
	}
	s, err := schemaOf(r.chart)
	if err != nil {
		return nil, err
	}
	j.addProfile()
	j.addRunning()
	j.walk(j.root, s, nil)
	return j, nil
}

// addProfile adds the values that a profile of Istio's charts sets.
func (j *valueJudge) addProfile() {
	for _, of := range []*yaml.Node{j.root, get(j.root, "global")} {
		each(of, func(key, n *yaml.Node) {
			p, known := profiles()[n.Value]
			if key.Value != "profile" || j.profile != nil || !known || p.Charts != n.Value {
				return
			}
			j.profile = key
			each(difference(&p.Values, get(j.root, "pilot")), func(value, n *yaml.Node) { // values below pilot take precedence
				if j.chart == "istiod" || j.chart == "base" && value.Value == "experimental" {
					j.added = append(j.added, put(j.root, value, n)...)
				}
			})
		})
	}
}

func (j *valueJudge) add(at *yaml.Node, p migration.Point) {
	line := at.Line
	if line == 0 && j.profile != nil {
		line = j.profile.Line
		p.Text = "by the profile, " + p.Text
	}
	switch {
	case line != ofRunning:
		p.Where = fmt.Sprintf("%s:%d", j.file, line)
	case j.running != nil:
		p.Where = j.running.file
	default:
		p.Where = j.file
	}
	j.points = append(j.points, p)
}

// works counts a value that is kept as it is written, not one of a profile.
func (j *valueJudge) works(key *yaml.Node) {
	if key.Line != 0 {
		j.working++
	}
}

func (j *valueJudge) drop(n *yaml.Node) {
	each(n, func(key, _ *yaml.Node) { j.dropped[key] = true })
}

// walk judges the values below a mapping. s is nil below values whose form is not known.
func (j *valueJudge) walk(n *yaml.Node, s *valueSchema, path []string) {
	each(n, func(key, value *yaml.Node) {
		if !j.judgeValue(key, value, s, append(slices.Clone(path), key.Value)) {
			j.dropped[key] = true
		}
	})
}

// judgeValue judges a value, and reports whether it stays among the values of the chart.
func (j *valueJudge) judgeValue(key, value *yaml.Node, s *valueSchema, path []string) (stays bool) {
	name := strings.Join(path, ".")
	if j.global && path[0] == "global" {
		return true
	}
	row := settings.Find(settings.Values(), j.chart+":"+strings.TrimPrefix(name, "pilot."))
	if row != nil && row.Effect != settings.Works && row.Effect != settings.Refused {
		if isSet(value, row.Effect) {
			j.addRow(key, value, name, row)
		}
		return false
	}
	child, ok := s.property(key.Value)
	if path[0] == "global" && len(path) == 2 && !j.parent && !slices.Contains(globalNames(), key.Value) {
		ok = false
	}
	switch {
	case !ok:
		near := ""
		if known := diag.Nearest(key.Value, s.names()); known != "" {
			near = fmt.Sprintf(": did you mean %s?", known)
		}
		j.add(key, migration.Point{InTheWay: true, Text: fmt.Sprintf("%s is refused: the chart has no such value%s", name, near),
			Fix: "leave it out, after you have seen what it did"})
		return false
	case child == nil && s != nil && len(s.Properties) > 0:
		if !empty(value) {
			j.add(key, migration.Point{Text: name + " has no effect here: the chart does not know it"})
		}
		return path[0] == "global" // which belongs to the parent chart
	}
	if wrong := child.wrong(value); wrong != "" {
		j.add(key, migration.Point{InTheWay: true, Text: fmt.Sprintf("%s is refused: %s", name, wrong)})
		return false
	}
	switch strings.TrimPrefix(name, "pilot.") {
	case "meshConfig":
		j.mesh(value, name)
	case "env":
		if j.chart == "istiod" {
			j.variables(value, name, child)
		} else {
			each(value, func(key, _ *yaml.Node) { j.works(key) })
		}
	case "extraContainerArgs":
		j.arguments(key, value, name)
	default:
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && (child == nil || len(child.Properties) > 0) {
			j.walk(value, child, path)
		} else {
			j.works(key)
		}
	}
	return true
}

// addRow adds a point about a value that has a row.
func (j *valueJudge) addRow(key, value *yaml.Node, name string, row *settings.Setting) {
	where := "here"
	if j.back {
		where = "there"
	}
	p := migration.Point{InTheWay: row.Effect == settings.Without, Text: fmt.Sprintf("%s has no effect %s: %s", name, where, row.Why)}
	switch {
	case row.Effect == settings.Elsewhere:
		p.Text, p.Fix = name+" has another place", row.Why
	case row.Effect == settings.LeftOut:
		p.Text = name + " must be left out: " + row.Why
	case key.Value == "profile" && len(j.added) > 0:
		p.Fix = "it sets " + strings.Join(j.added, ", ") + ", which -o values writes out"
	case key.Value == "profile":
		if _, known := profiles()[value.Value]; known {
			return // it sets nothing, or nothing that is not set already
		}
	}
	j.add(key, p)
}

// globalNames returns the names that the charts of this tree take below global: those of all charts of a mesh.
var globalNames = sync.OnceValue(func() (list []string) {
	for _, s := range settings.Values() {
		if _, path, _ := strings.Cut(s.Name, ":"); strings.HasPrefix(path, "global.") {
			list = append(list, strings.Split(path, ".")[1])
		}
	}
	for _, chart := range []string{"base", "istiod", "gateway"} {
		if s, err := schemaOf(chart); err == nil {
			if global, _ := s.property("global"); global != nil {
				list = append(list, global.names()...)
			}
		}
	}
	return list
})

// isSet reports whether a value of a row is set. A value that has another place may be false there.
func isSet(n *yaml.Node, effect settings.Effect) bool {
	if effect != settings.Elsewhere {
		return !empty(n)
	}
	return len(n.Content) > 0 || n.Kind == yaml.ScalarNode && n.Value != "" && n.ShortTag() != "!!null"
}

// empty reports whether a value is one that charts take as absent, or a part that is not enabled.
func empty(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.MappingNode:
		nothing := true
		each(n, func(_, value *yaml.Node) { nothing = nothing && empty(value) })
		return nothing || !on(n, true)
	case yaml.ScalarNode:
		v, err := yaml11.Value(n)
		return err == nil && (v == nil || v == false || v == "" || v == 0)
	}
	return len(n.Content) == 0
}

// variables judges the environment of istiod.
func (j *valueJudge) variables(n *yaml.Node, name string, s *valueSchema) {
	keys := map[string]*yaml.Node{}
	var known []string
	each(n, func(key, value *yaml.Node) {
		of, _ := s.property(key.Value)
		if wrong := of.wrong(value); wrong != "" {
			j.add(key, migration.Point{InTheWay: true, Text: fmt.Sprintf("%s.%s is refused: %s", name, key.Value, wrong)})
			j.dropped[key] = true
			return
		}
		text := value.Value
		if b, ok := yaml11.Bool(value); ok {
			text = strconv.FormatBool(b)
		}
		keys[key.Value], known = key, append(known, key.Value+"="+text)
	})
	list, e := judgeEnvironment(environment{known: known}, nil)
	for _, x := range e.Foreign() {
		j.dropped[keys[x.Name]] = true
	}
	said := map[string]bool{}
	for _, x := range list {
		at := n
		for _, variable := range slices.Backward(x.variables) {
			at, said[variable] = keys[variable], true
		}
		if !j.inCluster() {
			x.Text = name + ": " + x.Text
			j.add(at, x.Point)
		}
	}
	for variable, key := range keys {
		if !said[variable] {
			j.works(key)
		}
	}
}

// arguments judges arguments of the control plane. The verdict about a control plane that runs names its arguments.
func (j *valueJudge) arguments(key, n *yaml.Node, name string) {
	var args []string
	for _, x := range n.Content {
		args = append(args, x.Value)
	}
	_, idle, wrong := judge(nil, args)
	if len(idle)+len(wrong) == 0 {
		j.works(key)
	}
	if j.inCluster() {
		return
	}
	for _, text := range wrong {
		j.add(key, migration.Point{InTheWay: true, Text: name + ": " + text})
	}
	for _, argument := range idle {
		j.add(key, migration.Point{InTheWay: true, Text: name + ": --" + argument + " has no effect here",
			Fix: "remove it, or check that nothing depends on it"})
	}
}

// mesh judges the mesh configuration.
func (j *valueJudge) mesh(n *yaml.Node, name string) {
	text, err := yaml.Marshal(n)
	if err != nil {
		j.add(n, migration.Point{InTheWay: true, Text: name + ": " + err.Error()})
		return
	}
	c, found := mesh.Parse(name, text)
	if c == nil {
		c, _ = mesh.Salvage(mesh.Default(), name, text)
	}
	if c != nil {
		found = append(found, catalog.Features().UnsupportedMesh(c)...)
	}
	bad := map[string]bool{}
	for _, d := range found {
		if d.Severity != diag.Error && !migration.Differs(d) {
			continue
		}
		at := n
		for depth, step := range strings.FieldsFunc(d.Field, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
			if depth == 0 {
				bad[step] = true
			}
			if next := get(at, step); next != nil {
				at = next
			} else if index := 0; at.Kind == yaml.SequenceNode {
				if _, err := fmt.Sscan(step, &index); err == nil && index < len(at.Content) {
					at = at.Content[index]
				}
			}
		}
		field := name
		if d.Field != "" {
			field += "." + d.Field
		}
		if !j.inCluster() {
			j.add(at, migration.Point{InTheWay: true, Text: field + ": " + d.Message, Fix: d.Fix})
		}
	}
	each(n, func(key, _ *yaml.Node) {
		if !bad[key.Value] {
			j.works(key)
		}
	})
}

// addValues adds a section for each release.
func addValues(v *migration.Verdict, list []*release) ([]*valueJudge, error) {
	var all []*valueJudge
	for _, r := range list {
		r.renew()
		j, err := r.judge()
		if err != nil {
			return nil, err
		}
		all = append(all, j)
		v.Add(r.section(), j.points...)
		if j.working == 1 {
			v.Add(r.section(), migration.Point{Text: "1 value works as it is written"})
		} else if j.working > 0 {
			v.Add(r.section(), migration.Point{Text: fmt.Sprintf("%d values work as they are written", j.working)})
		}
	}
	return all, nil
}

// kept returns a mapping without the keys that were dropped, and without mappings that lost all of their keys.
func (j *valueJudge) kept(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = nil
	each(n, func(key, value *yaml.Node) {
		left := j.kept(value)
		lost := left.Kind == yaml.MappingNode && len(left.Content) == 0 && len(value.Content) > 0
		if !j.dropped[key] && !lost {
			out.Content = append(out.Content, key, left)
		}
	})
	return &out
}
