package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// write writes the verdict in a format. mesh says whether objects of a mesh were read.
func write(w io.Writer, v *migration.Verdict, output string, color cli.Painter, mesh bool) error {
	switch output {
	case "json", "yaml":
		return cli.PrintValue(w, v, output)
	case "name":
		return writeNames(w, v)
	}
	return writeText(w, v, output == "wide", color, mesh)
}

// writeNames writes the objects with points that are in the way, each once.
func writeNames(w io.Writer, v *migration.Verdict) error {
	var list []string
	for _, s := range v.Sections {
		for _, p := range s.Points {
			if name := cmp.Or(p.Object, p.Where); p.InTheWay && name != "" {
				list = append(list, name)
			}
		}
	}
	return cli.PrintSorted(w, list)
}

// fewPoints limits how many points of a section are written that are not in the way. The format wide writes all of
// them.
const fewPoints = 10

// writeText writes the verdict for people.
func writeText(w io.Writer, v *migration.Verdict, wide bool, color cli.Painter, mesh bool) error {
	var out bytes.Buffer
	switch {
	case !mesh:
	case v.Same == v.Objects:
		fmt.Fprintf(&out, "No difference from istiod is known for %s.\n", report.Amount(v.Objects, "object"))
	default:
		fmt.Fprintf(&out, "%d of %s have another effect than under istiod; for %d no difference is known.\n",
			v.Objects-v.Same, report.Amount(v.Objects, "object"), v.Same)
	}
	if mesh {
		fmt.Fprintln(&out, "What proxies are sent was not compared.")
	}
	for _, s := range v.Sections {
		if out.Len() > 0 {
			fmt.Fprintln(&out)
		}
		fmt.Fprintf(&out, "%s\n", strings.ToUpper(s.Name[:1])+s.Name[1:])
		left, shown := 0, 0
		for _, p := range s.Points {
			if !p.InTheWay {
				if shown++; shown > fewPoints && !wide {
					left++
					continue
				}
			}
			mark := " "
			if p.InTheWay {
				mark = color.Paint(cli.Red, "!")
			}
			fmt.Fprintf(&out, "%s %s", mark, p.Text)
			if p.Fix != "" {
				fmt.Fprintf(&out, "; %s", p.Fix)
			}
			if p.Where != "" && !strings.Contains(p.Text, p.Where) {
				fmt.Fprintf(&out, " (%s)", p.Where)
			}
			fmt.Fprintln(&out)
		}
		if left > 0 {
			fmt.Fprintf(&out, "  and %d more (-o wide)\n", left)
		}
	}
	if v.InTheWay == 0 {
		fmt.Fprintf(&out, "\n%s docs/migrate.md describes the migration and the way back.\n",
			color.Paint(cli.Green, "Nothing stands in the way."))
	} else {
		fmt.Fprintf(&out, "\n%s in the way (!). docs/migrate.md describes the migration and the way back.\n",
			color.Paint(cli.Red, stands(v.InTheWay)))
	}
	_, err := w.Write(out.Bytes())
	return err
}

func stands(n int) string {
	if n == 1 {
		return "1 thing stands"
	}
	return fmt.Sprintf("%d things stand", n)
}

// ofChart returns the releases of a chart, of which several may be distinguished by a name.
func ofChart(list []*valueJudge, name string) ([]*valueJudge, error) {
	chart, name, _ := strings.Cut(name, "/")
	var found []*valueJudge
	var names []string
	for _, j := range list {
		words := strings.FieldsFunc(j.name, func(r rune) bool { return r == ' ' || r == '/' })
		if j.chart == chart && (name == "" || slices.Contains(words, name)) {
			found, names = append(found, j), append(names, cmp.Or(j.name, j.file))
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("--chart: no values of the chart %s were found", chart)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("--chart: several releases have the chart %s: write %s/NAME for one of %s", chart, chart, strings.Join(names, ", "))
}

// writeValues writes the values of each release that a chart is for, as files for Helm, or of the release of one chart.
func writeValues(w io.Writer, list []*valueJudge, chart string) error {
	var out bytes.Buffer
	if chart != "" {
		var err error
		if list, err = ofChart(list, chart); err != nil {
			return err
		}
	}
	for _, j := range list {
		if j.chart == "ztunnel" {
			continue
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		from := "charts/" + j.chart
		if j.chart == "cni" || j.back {
			from = "Istio's chart " + j.chart
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
