package pushes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// historyOf asks the server for the last versions of an object: the newest limit ones, or all if limit is 0.
func historyOf(ctx context.Context, address, object, output string, limit int) (h progress.History, err error) {
	name, err := input.ObjectName(object)
	if err != nil {
		return h, fmt.Errorf("--object %s: %w", cli.Quoted(object), err)
	}
	query := url.Values{"object": {name}}
	text, err := cli.Read(ctx, "", address, "/debug/"+progress.HistoryPage+"?"+query.Encode())
	if err == nil {
		h, err = readHistory(text, output)
	}
	if limit > 0 && len(h.Versions) > limit {
		h.Versions = h.Versions[:limit]
	}
	return h, err
}

// readHistory decodes a history for an output format. The commands of a history may have several lines, so they are not
// made plain. A table leaves out a command with other control characters, because a terminal would show another text.
func readHistory(text []byte, output string) (h progress.History, err error) {
	var whole progress.History
	if err := errors.Join(cli.Decode(text, output, &h), cli.Decode(text, "json", &whole)); err != nil {
		return h, err
	}
	for i := range h.Versions {
		p := &h.Versions[i]
		if p.Restore = whole.Versions[i].Restore; terminal.Lines(p.Restore) != p.Restore && cli.Tabular(output) {
			p.Restore, p.NoRestore = "", "it has control characters, which -o json shows"
		}
	}
	return h, nil
}

// history writes the last versions of an object.
func (w *writer) history(h *progress.History) error {
	var silent []debug.Replica
	for _, r := range h.Replicas {
		if r.Error != "" {
			silent = append(silent, debug.Replica{Name: r.Name, Error: r.Error})
		}
	}
	var out bytes.Buffer
	switch w.output {
	case "name":
		for i := range h.Versions {
			fmt.Fprintln(&out, versionOf(&h.Versions[i], false))
		}
	case "json", "yaml":
		if err := cli.PrintValue(&out, h, w.output); err != nil {
			return err
		}
	default:
		w.versions(&out, h)
	}
	if w.lines() {
		cli.TellIncomplete(&out, silent)
	} else {
		cli.TellIncomplete(w.said, silent)
	}
	_, err := w.out.Write(out.Bytes())
	return err
}

// versions writes the versions as a table, newest first. Below are the commands that bring the version before back: of
// the newest version, or of all with -o wide.
func (w *writer) versions(out *bytes.Buffer, h *progress.History) {
	if len(h.Versions) == 0 {
		fmt.Fprintln(out, "The object has not changed since the server started, or too many others have changed since.")
		return
	}
	wide := w.output == "wide"
	table := tabwriter.NewWriter(out, 8, 8, 3, ' ', 0)
	fmt.Fprint(table, "TIME\tVERSION\tPROXIES\tIN FORCE AFTER\tWRITTEN BY")
	if wide {
		fmt.Fprint(table, "\tWRITTEN\tREAD FROM")
	}
	fmt.Fprintln(table)
	for i := range h.Versions {
		p := &h.Versions[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s", moment(p.Time), versionOf(p, wide), proxiesOf(p), tookOf(p), cmp.Or(p.Manager, "-"))
		if wide {
			fmt.Fprintf(table, "\t%s\t%s", moment(p.Written), cmp.Or(p.Position, "-"))
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // cannot fail on a buffer
	commands := 1
	if wide {
		commands = len(h.Versions)
	}
	for i := range commands {
		restore(out, h, i)
	}
}

// restore writes how the version before the one with index i is brought back.
func restore(out io.Writer, h *progress.History, i int) {
	p := &h.Versions[i]
	before := "what was before"
	if i+1 < len(h.Versions) {
		before = versionOf(&h.Versions[i+1], false)
	}
	switch {
	case p.Restore != "":
		fmt.Fprintf(out, "\nThis brings %s back:\n\n%s\n", before, strings.TrimRight(p.Restore, "\n"))
	case p.NoRestore != "":
		fmt.Fprintf(out, "\nNo command brings %s back: %s.\n", before, p.NoRestore)
	}
}

// versionOf returns the name of a version: its generation or the beginning of its hash, or all of it if whole is true.
func versionOf(p *progress.Past, whole bool) string {
	const short = 8
	switch {
	case p.Deleted:
		return "deleted"
	case p.Generation > 0:
		return strconv.FormatInt(p.Generation, 10)
	case p.Version == "":
		return "-"
	case whole:
		return p.Version
	}
	return p.Version[:min(short, len(p.Version))]
}

// proxiesOf returns the number of proxies that were sent something because of a version.
func proxiesOf(p *progress.Past) string {
	switch {
	case p.Counted:
		return strconv.Itoa(p.Proxies)
	case p.Proxies > 0:
		return ">=" + strconv.Itoa(p.Proxies)
	}
	return "-"
}

// tookOf returns how long it took until all proxies had a version.
func tookOf(p *progress.Past) string {
	switch {
	case p.Invalid:
		return "invalid"
	case p.Took == nil:
		return "-"
	}
	return time.Duration(*p.Took * float64(time.Second)).Round(time.Millisecond).String()
}

func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
