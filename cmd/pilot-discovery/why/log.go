package why

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// logArgs checks the number of arguments: with --log, SOURCE and HOST:PORT may be missing.
func (f *flags) logArgs(c *cobra.Command, args []string) error {
	if c.Flags().Changed("log") {
		return cobra.MaximumNArgs(3)(c, args)
	}
	return cobra.RangeArgs(2, 3)(c, args)
}

// readLog reads the line that --log names, from standard input if it is a dash.
func (f *flags) readLog(c *cobra.Command) error {
	if f.query.Log != "-" {
		if f.query.Log = strings.TrimSpace(f.query.Log); f.query.Log == "" && c.Flags().Changed("log") {
			return fmt.Errorf("--log: it is empty: write a line of an access log, or - for standard input")
		}
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), accesslog.MaxLine+1))
	if err != nil {
		return fmt.Errorf("--log=-: %w", err)
	}
	if f.query.Log = strings.TrimSpace(string(text)); f.query.Log == "" {
		return fmt.Errorf("--log=-: standard input is empty: write a line of an access log")
	}
	return nil
}

// printLog writes what a line of an access log says and whether the configuration explains it.
func printLog(w io.Writer, q inspect.Query, way *inspect.Way, wide bool, color cli.Painter) error {
	var out bytes.Buffer
	l := way.Log
	fmt.Fprintf(&out, "The text is %s", described(l))
	if l.Of != "" {
		fmt.Fprintf(&out, ", of %s (%s)", l.Of, l.Side)
	}
	if !l.Time.IsZero() {
		fmt.Fprintf(&out, ", at %s", l.Time.UTC().Format(time.RFC3339Nano))
	}
	if answer := l.Answer(); answer != "" {
		fmt.Fprintf(&out, ": %s", answer)
	}
	fmt.Fprintln(&out)
	for _, m := range l.Meanings {
		name := m.Name
		if m.Long != "" {
			name += ", " + m.Long
		}
		fmt.Fprintf(&out, "  %s: %s\n    %s\n", name, m.Says, color.Paint(cli.Dim, m.Look))
	}
	for _, note := range l.Notes {
		fmt.Fprintf(&out, "%s %s\n", color.Paint(cli.Amber, "!"), note)
	}
	if way.Outbound == nil {
		fmt.Fprintln(&out)
		for _, text := range l.Missing {
			fmt.Fprintln(&out, color.Paint(cli.Amber, text))
		}
		_, err := w.Write(out.Bytes())
		return err
	}
	fmt.Fprintln(&out)
	q.Source, q.Method, q.Path = l.Source, cmp.Or(q.Method, l.Method), cmp.Or(q.Path, l.Path)
	q.Host, _, _ = cutPort(l.Target)
	q.Port = way.Port
	if err := printWay(&out, q, way, wide, color); err != nil {
		return err
	}
	verdict := cli.Amber
	if l.Explained {
		verdict = cli.Green
	}
	fmt.Fprintf(&out, "\n%s\n", color.Paint(verdict, l.Verdict))
	if len(l.Changes) > 0 {
		heading := "Changes after the line that may concern the request:"
		switch {
		case l.Time.IsZero():
			heading = "Changes that may concern the request:"
		case l.Explained:
			heading = "The last changes before the line of what decides the request:"
		}
		fmt.Fprintln(&out, heading)
	}
	for _, c := range l.Changes {
		fmt.Fprintf(&out, "  %s push %d: %s", c.Time.Local().Format("2006-01-02 15:04:05.000"), c.Push, c.Object)
		if c.Where != "" {
			fmt.Fprintf(&out, " (%s)", c.Where)
		}
		if c.Gone {
			fmt.Fprint(&out, " (gone)")
		}
		if c.OnWay && !l.Explained {
			fmt.Fprint(&out, ", which decides the request now")
		}
		fmt.Fprintln(&out)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// described names the format of a text.
func described(l *inspect.Log) string {
	if l.Kind == accesslog.Line {
		return "a line of an access log in " + l.Format
	}
	return l.Format
}

// cutPort splits HOST:PORT.
func cutPort(target string) (host, port string, found bool) {
	at := strings.LastIndexByte(target, ':')
	if at < 0 {
		return target, "", false
	}
	return target[:at], target[at+1:], true
}
