package diff

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/diff"
)

// text writes the effect of a change for people.
func (f *flags) text(w io.Writer, done *inspect.Changed, tree *gitTree) error {
	var out bytes.Buffer
	for _, o := range done.Objects {
		what, at := "changed", o.New
		switch {
		case o.Old == nil:
			what = "created"
		case o.New == nil:
			what, at = "deleted", o.Old
		}
		fmt.Fprintf(&out, "%s is %s%s\n", o.Key, f.Color.Paint(map[string]string{"created": cli.Green, "deleted": cli.Red}[what], what),
			placed(at.Position))
	}
	if len(done.Objects) == 0 {
		fmt.Fprintln(&out, "No object differs from what there is.")
	}
	fmt.Fprintf(&out, "%d of %s affected; %s would be pushed, for %s.\n", done.Affected(), proxiesAre(done.Proxies, done.Affected()),
		cli.Bytes(int64(done.Difference.Bytes())), report.Amount(len(done.Changes), "change"))
	f.list(&out, "New, so that they get everything: ", done.Come)
	f.list(&out, "No more: ", done.Gone)
	groups, err := f.alike(done.Groups)
	if err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, g := range groups {
		fmt.Fprintln(&out)
		f.list(&out, "", g.proxies)
		if g.least == g.most {
			fmt.Fprintf(&out, "  %s to each\n", cli.Bytes(int64(g.most)))
		} else {
			fmt.Fprintf(&out, "  %s to %s to each\n", cli.Bytes(int64(g.least)), cli.Bytes(int64(g.most)))
		}
		for _, text := range g.changes {
			if first, _, several := strings.Cut(text, "\n"); several && shown[text] {
				text = first + ", as above"
			}
			shown[text] = true
			fmt.Fprintln(&out, text)
		}
		if g.more > 0 {
			fmt.Fprintf(&out, "  and %d more resources (--limit 0 prints all)\n", g.more)
		}
	}
	findings := func(mark, color string, list []diag.Diagnostic) {
		for _, d := range list {
			fmt.Fprintf(&out, "  %s %s\n", f.Color.Paint(color, mark), d)
		}
	}
	if len(done.New)+len(done.Mended) > 0 {
		fmt.Fprintf(&out, "\n%s new, %d mended:\n", report.Amount(len(done.New), "finding"), len(done.Mended))
		findings("+", cli.Red, done.New)
		findings("-", cli.Green, done.Mended)
	}
	_, err = io.WriteString(w, tree.shown(out.String()))
	return err
}

// textGroup is a group of proxies whose changes read the same, though their resources may differ elsewhere. It is
// written once.
type textGroup struct {
	proxies     []string
	least, most int      // range of bytes that each proxy is sent
	changes     []string // text of each change, without the last newline
	more        int      // number of changes that are not written
}

// alike merges groups whose changes read the same.
func (f *flags) alike(list []*diff.Group) ([]*textGroup, error) {
	var out []*textGroup
	byText, texts := map[string]*textGroup{}, map[*diff.Change]string{}
	for _, g := range list {
		n := len(g.Changes)
		if f.limit > 0 {
			n = min(n, f.limit)
		}
		t := &textGroup{proxies: slices.Clone(g.Proxies), least: g.Bytes, most: g.Bytes, more: len(g.Changes) - n}
		for _, x := range g.Changes[:n] {
			if _, made := texts[x]; !made {
				text, err := f.change(x)
				if err != nil {
					return nil, err
				}
				texts[x] = text
			}
			t.changes = append(t.changes, texts[x])
		}
		key := strings.Join(t.changes, "\n")
		for _, x := range g.Changes[n:] {
			key += "\n" + mark(x) + x.Type + " " + x.Name
		}
		if same := byText[key]; same != nil {
			same.proxies = append(same.proxies, t.proxies...)
			same.least, same.most = min(same.least, t.least), max(same.most, t.most)
			continue
		}
		byText[key] = t
		out = append(out, t)
	}
	for _, t := range out {
		slices.Sort(t.proxies)
	}
	return out, nil
}

// placed returns a position as it is written behind the object that has it.
func placed(position string) string {
	if position == "" {
		return ""
	}
	return " (" + position + ")"
}

// list writes a list of proxies, up to the limit.
func (f *flags) list(out *bytes.Buffer, head string, list []string) {
	if len(list) == 0 {
		return
	}
	n := len(list)
	if f.limit > 0 {
		n = min(n, f.limit)
	}
	fmt.Fprint(out, head, strings.Join(list[:n], ", "))
	if more := len(list) - n; more > 0 {
		fmt.Fprintf(out, " and %d more", more)
	}
	fmt.Fprintln(out)
}

// change returns the text of a change, without the last newline.
func (f *flags) change(x *diff.Change) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "  %s %s\n", f.mark(x), strings.TrimSpace(x.Type+" "+x.Name))
	list, err := x.Fields()
	if err != nil {
		return "", err
	}
	for n, d := range list {
		if f.limit > 0 && n == f.limit {
			fmt.Fprintf(&out, "      and %d more fields\n", len(list)-n)
			break
		}
		switch {
		case d.Had == "" && d.Has == "":
			fmt.Fprintf(&out, "      %s\n", d.Path)
		case d.Had == "":
			fmt.Fprintf(&out, "      %s %s: %s\n", f.Color.Paint(cli.Green, "+"), d.Path, f.short(d.Has))
		case d.Has == "":
			fmt.Fprintf(&out, "      %s %s: %s\n", f.Color.Paint(cli.Red, "-"), d.Path, f.short(d.Had))
		default:
			fmt.Fprintf(&out, "      %s: %s -> %s\n", d.Path, f.short(d.Had), f.short(d.Has))
		}
	}
	for _, c := range x.Causes {
		fmt.Fprintf(&out, "    because of %s%s\n", c.Key, placed(c.Position))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// short shortens long values if lists are shortened.
func (f *flags) short(text string) string {
	const most = 200
	if f.limit == 0 || len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("... (%d bytes)", len(text))
}

// mark is the mark of a change, in its colour.
func (f *flags) mark(x *diff.Change) string {
	m := mark(x)
	return f.Color.Paint(map[string]string{"+": cli.Green, "-": cli.Red, "~": cli.Amber}[m], m)
}

// wide writes the effect of a change for people, with nothing left out.
func (f *flags) wide(w io.Writer, done *inspect.Changed, tree *gitTree) error {
	all := *f
	all.limit = 0
	return all.text(w, done, tree)
}

// proxiesAre returns the number of proxies, with the verb for the number of affected ones.
func proxiesAre(of, affected int) string {
	count := fmt.Sprintf("%d proxies", of)
	if of == 1 {
		count = "1 proxy"
	}
	if affected == 1 {
		return count + " is"
	}
	return count + " are"
}

// names writes the names of the affected proxies, in order.
func (f *flags) names(w io.Writer, done *inspect.Changed, _ *gitTree) error {
	list := slices.Concat(done.Come, done.Gone)
	for _, g := range done.Groups {
		list = append(list, g.Proxies...)
	}
	return cli.PrintSorted(w, list)
}

func mark(x *diff.Change) string {
	switch {
	case x.Had == nil:
		return "+"
	case x.Has == nil:
		return "-"
	}
	return "~"
}

// document writes what a change does for a program.
func (f *flags) document(w io.Writer, done *inspect.Changed, tree *gitTree) error {
	type cause struct {
		Object   string `json:"object"`
		Position string `json:"position,omitempty"`
		Deleted  bool   `json:"deleted,omitempty"`
	}
	type change struct {
		Type    string       `json:"type"`
		Name    string       `json:"name"`
		Change  string       `json:"change"` // added, changed or removed
		Proxies int          `json:"proxies"`
		Fields  []diff.Field `json:"fields,omitempty"`
		Causes  []cause      `json:"causes,omitempty"`
	}
	type group struct {
		Proxies []string `json:"proxies"`
		Bytes   int      `json:"bytesEach"`
		Changes []int    `json:"changes"` // places in the list of all
	}
	type object struct {
		Object   string `json:"object"`
		Change   string `json:"change"` // created, changed or deleted
		Position string `json:"position,omitempty"`
	}
	out := struct {
		Objects  []object          `json:"objects"`
		Proxies  int               `json:"proxies"`
		Affected int               `json:"affected"`
		Bytes    int               `json:"bytes"`
		New      []string          `json:"newProxies,omitempty"`
		Gone     []string          `json:"goneProxies,omitempty"`
		Changes  []change          `json:"changes"`
		Groups   []group           `json:"groups"`
		Found    []diag.Diagnostic `json:"newFindings,omitempty"`
		Mended   []diag.Diagnostic `json:"mendedFindings,omitempty"`
	}{
		Objects: []object{}, Changes: []change{}, Groups: []group{}, Proxies: done.Proxies, Affected: done.Affected(),
		Bytes: done.Difference.Bytes(), New: done.Come, Gone: done.Gone,
		Found: done.New, Mended: done.Mended,
	}
	for _, o := range done.Objects {
		switch {
		case o.Old == nil:
			out.Objects = append(out.Objects, object{o.Key.String(), "created", o.New.Position})
		case o.New == nil:
			out.Objects = append(out.Objects, object{o.Key.String(), "deleted", tree.shown(o.Old.Position)})
		default:
			out.Objects = append(out.Objects, object{o.Key.String(), "changed", o.New.Position})
		}
	}
	words := map[string]string{"+": "added", "-": "removed", "~": "changed"}
	place := map[*diff.Change]int{}
	for i, x := range done.Changes {
		place[x] = i
		fields, err := x.Fields()
		if err != nil {
			return err
		}
		c := change{Type: x.Type, Name: x.Name, Change: words[mark(x)], Proxies: x.Proxies, Fields: fields}
		for _, why := range x.Causes {
			c.Causes = append(c.Causes, cause{why.Key.String(), tree.shown(why.Position), why.Deleted})
		}
		out.Changes = append(out.Changes, c)
	}
	for _, g := range done.Groups {
		x := group{Proxies: g.Proxies, Bytes: g.Bytes}
		for _, c := range g.Changes {
			x.Changes = append(x.Changes, place[c])
		}
		out.Groups = append(out.Groups, x)
	}
	return cli.PrintValue(w, out, f.Output)
}
