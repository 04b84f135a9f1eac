package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

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
