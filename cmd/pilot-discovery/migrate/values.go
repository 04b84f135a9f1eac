package migrate

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/yaml11"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

//go:embed values.txt
var valuesTable string

// Value is a value of one of Istio's charts that has no effect here, or another place.
type Value struct {
	Mark byte   // '~', '!' or '>'
	Why  string // the reason, or the place
	Name string // CHART:VALUE
}

// Values returns the values of Istio's charts that have no effect here or another place, in the order of their table.
var Values = sync.OnceValue(func() (list []Value) {
	var section Value
	for line := range strings.Lines(valuesTable) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == ';':
		case strings.ContainsRune("~!>", rune(line[0])):
			section = Value{Mark: line[0], Why: strings.TrimSpace(line[1:])}
		default:
			list = append(list, Value{section.Mark, section.Why, line})
		}
	}
	return list
})

// release is the values of one chart.
type release struct {
	chart string // of this tree, or one of Istio's that is used as it is, such as cni
	name  string // the release's name, if the file says it
	file  string
	root  *yaml.Node
}

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
	if file == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, nil, err
	}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if err := d.Decode(&doc); err == io.EOF {
			return list, points, nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		root := doc.Content[0]
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
func chartNames() []string { return []string{"istiod", "gateway", "base", "cni", "ztunnel"} }

// releasesOf returns the releases in values: several if they are for a parent chart, in which the name of each chart is
// a key. Otherwise it is the chart that has the most of their names.
func releasesOf(root *yaml.Node, file string) (list []*release) {
	if get(root, "istiod") != nil || get(root, "gateway") != nil {
		for i := 0; i+1 < len(root.Content); i += 2 {
			if name, n := root.Content[i].Value, root.Content[i+1]; slices.Contains(chartNames(), name) && n.Kind == yaml.MappingNode {
				list = append(list, &release{chart: name, file: file, root: n})
			}
		}
		if global := get(root, "global"); global != nil { // parent charts pass it to each chart
			top := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "global", Line: global.Line}, global}}
			list = append(list, &release{chart: "istiod", name: "global", file: file, root: top})
		}
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

// valueJudge judges the values of one release.
type valueJudge struct {
	*release
	points  []migration.Point
	works   int
	dropped map[*yaml.Node]bool // keys of values that have no place in the chart
}

// judge returns points about the values of a release, and marks the keys that are left out of the chart's values.
func (r *release) judge() (*valueJudge, error) {
	j := &valueJudge{release: r, dropped: map[*yaml.Node]bool{}}
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
	j.walk(r.root, s, nil)
	return j, nil
}

func (j *valueJudge) add(at *yaml.Node, p migration.Point) {
	p.Where = fmt.Sprintf("%s:%d", j.file, at.Line)
	j.points = append(j.points, p)
}

func (j *valueJudge) drop(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		j.dropped[n.Content[i]] = true
	}
}

// walk judges the values below a mapping. s is nil below values whose form is not known.
func (j *valueJudge) walk(n *yaml.Node, s *valueSchema, path []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if !j.one(key, value, s, append(slices.Clone(path), key.Value)) {
			j.dropped[key] = true
		}
	}
}

// one judges a value, and reports whether it stays among the values of the chart.
func (j *valueJudge) one(key, value *yaml.Node, s *valueSchema, path []string) (stays bool) {
	name := strings.Join(path, ".")
	if row := rowOf(j.chart, strings.TrimPrefix(name, "pilot.")); row != nil {
		sets, ofIstio := profiles()[value.Value]
		if said(value, row.Mark) && (key.Value != "profile" || !ofIstio || sets != "") {
			p := migration.Point{InTheWay: row.Mark == '!', Text: name + " has no effect here: " + row.Why}
			if p.Fix = sets; row.Mark == '>' {
				p = migration.Point{Text: name + " has another place", Fix: row.Why}
			}
			j.add(key, p)
		}
		return false
	}
	child, ok := s.property(key.Value)
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
			j.variables(value, name)
		} else {
			j.works += len(value.Content) / 2
		}
	default:
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && (child == nil || len(child.Properties) > 0) {
			j.walk(value, child, path)
		} else {
			j.works++
		}
	}
	return true
}

// rowOf returns the row about a value of a chart, or nil.
func rowOf(chart, name string) *Value {
	all := Values()
	for i := range all {
		if all[i].Name == chart+":"+name {
			return &all[i]
		}
	}
	return nil
}

// said reports whether a value of a row says something. A value that has another place may be false there.
func said(n *yaml.Node, mark byte) bool {
	if mark != '>' {
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
		return nothing || scalar(n, "enabled") == "false"
	case yaml.ScalarNode:
		v, err := yaml11.Value(n)
		return err == nil && (v == nil || v == false || v == "" || v == 0)
	}
	return len(n.Content) == 0
}

// variables judges the environment of istiod.
func (j *valueJudge) variables(n *yaml.Node, name string) {
	var list []string
	keys := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		keys[n.Content[i].Value] = n.Content[i]
		list = append(list, n.Content[i].Value+"="+n.Content[i+1].Value)
	}
	v := &migration.Verdict{}
	e := addSettings(v, environment{known: list}, nil, fmt.Sprintf("%s:%d", j.file, n.Line))
	foreign := e.Foreign()
	for _, s := range v.Sections {
		for _, p := range s.Points {
			if i := slices.IndexFunc(foreign, func(f env.Foreign) bool { return strings.HasPrefix(p.Text, f.Name+"=") }); i >= 0 {
				p.Where = fmt.Sprintf("%s:%d", j.file, keys[foreign[i].Name].Line)
				j.dropped[keys[foreign[i].Name]] = true
			}
			for name, key := range keys {
				if strings.Contains(p.Text, ": "+name+"=") { // a server would not start with it
					p.Where = fmt.Sprintf("%s:%d", j.file, key.Line)
				}
			}
			p.Text = name + ": " + p.Text
			j.points = append(j.points, p)
		}
	}
	j.works += len(list) - len(foreign)
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
	bad := 0
	for _, d := range found {
		if d.Severity != diag.Error && !migration.Differs(d) {
			continue
		}
		at := n
		for _, step := range strings.FieldsFunc(d.Field, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
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
		bad++
		j.add(at, migration.Point{InTheWay: true, Text: field + ": " + d.Message, Fix: d.Fix})
	}
	j.works += max(len(n.Content)/2-bad, 0)
}

// addValues adds a section for each release.
func addValues(v *migration.Verdict, list []*release) ([]*valueJudge, error) {
	var all []*valueJudge
	for _, r := range list {
		j, err := r.judge()
		if err != nil {
			return nil, err
		}
		all = append(all, j)
		v.Add(r.section(), j.points...)
		if j.works == 1 {
			v.Add(r.section(), migration.Point{Text: "1 value works as it is written"})
		} else if j.works > 0 {
			v.Add(r.section(), migration.Point{Text: fmt.Sprintf("%d values work as they are written", j.works)})
		}
	}
	return all, nil
}

// writeValues writes the values of each release that this tree has a chart for, as files for Helm.
func writeValues(w io.Writer, list []*valueJudge) error {
	var out bytes.Buffer
	for _, j := range list {
		if j.chart == "ztunnel" {
			continue
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		from := "charts/" + j.chart
		if j.chart == "cni" {
			from = "Istio's chart cni"
		}
		fmt.Fprintf(&out, "# Values of %s", from)
		if j.name != "" {
			fmt.Fprintf(&out, ", %s", j.name)
		}
		out.WriteString("\n")
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(j.kept(j.root)); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// kept returns a mapping without the keys that were dropped, and without mappings that lost all of their keys.
func (j *valueJudge) kept(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if j.dropped[n.Content[i]] {
			continue
		}
		value := j.kept(n.Content[i+1])
		if value.Kind == yaml.MappingNode && len(value.Content) == 0 && len(n.Content[i+1].Content) > 0 {
			continue
		}
		out.Content = append(out.Content, n.Content[i], value)
	}
	return &out
}

// get returns the value of a key of a mapping, or nil.
func get(n *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var next *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				next = n.Content[i+1]
			}
		}
		n = next
	}
	return n
}

// scalar returns the text of a key of a mapping, or "".
func scalar(n *yaml.Node, path ...string) string {
	if n = get(n, path...); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}
