package pushes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// Command returns the command pilot-discovery pushes.
func Command(e *env.Env) *cobra.Command {
	var address, output, object string
	var watch bool
	var limit int
	c := &cobra.Command{
		Use:   "pushes",
		Short: "Show the last pushes of the control plane, or the last versions of an object",
		Long: `Show the last pushes of the control plane, with their causes and results. The server at --address
asks the other replicas of its Service, because each replica pushes to its own proxies and numbers
its own pushes. Replicas that do not answer, or have another version, are named with the reason:
below the table, or on standard error with other formats.

  PROXIES   proxies that acknowledged the push, of all proxies that were sent something
  DURATION  time from the first change to the last acknowledgement, or to the last event so far
  NACKS     number of proxies that rejected a part

The errors of rejections and the objects that cause them are below the table, also for resources
that proxies requested when they connected.

-o wide has the duration of each stage, and every cause. -o name prints the IDs. With --watch, json
and yaml have one document for each push.

PROXIES is 0/0 for a push that changes nothing for the connected proxies.

With --object, the command shows the last versions of one object instead, newest first, with the
numbers of all replicas:

  TIME             time at which the control plane committed the version
  VERSION          metadata.generation of the object, the hash of its content, or "deleted"
  PROXIES          proxies that were sent something because of it; >= if there may have been more
  IN FORCE AFTER   time from the commit until all of them had it
  WRITTEN BY       field manager that wrote it, as metadata.managedFields of the object says

Below the table is the command that brings the version before the newest one back, with -o wide for
each version. The control plane keeps 8 versions of an object since its start. A version of the first load has
no time.`,
		Example: `  pilot-discovery pushes
  pilot-discovery pushes --watch
  pilot-discovery pushes -o json | jq '.pushes[] | select(.rejected > 0)'
  pilot-discovery pushes --object VirtualService/reviews.shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 0 {
				return fmt.Errorf("--limit %d: it is 0 for all, or a number of pushes", limit)
			}
			if watch && object != "" {
				return errors.New("--object and --watch are both given: pilot-discovery wait --watch follows an object")
			}
			askOne := func(ctx context.Context, query string) (page pushes.Page, err error) {
				err = cli.Page(ctx, "", address, "/debug/pushes?"+query, output, &page)
				return page, err
			}
			askAll := func(ctx context.Context, limit int) (allPushes, error) {
				list, err := debug.AskAll(ctx, cli.Pages(address, output), "pushes?limit="+strconv.Itoa(limit))
				if err != nil {
					return allPushes{}, err
				}
				return mergePushes(list, limit)
			}
			color, err := cli.Painted(c, e.Getenv)
			if err != nil {
				return err
			}
			w := writer{out: c.OutOrStdout(), said: c.ErrOrStderr(), output: output, color: color}
			if object != "" {
				h, err := historyOf(c.Context(), address, object, output, limit)
				if err != nil {
					return err
				}
				return w.history(&h)
			}
			page, err := askAll(c.Context(), limit)
			switch {
			case err != nil:
				return err
			case !watch:
				return w.page(page)
			case len(page.Replicas) == 0:
				return w.watch(c.Context(), nextOfOne(askOne), page)
			}
			return w.watch(c.Context(), nextOfAll(askAll), page)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "also print later pushes, until Ctrl-C")
	cli.OutputFlag(c, &output, cli.ListFormats()...)
	c.Flags().IntVar(&limit, "limit", 20, "number of pushes, or of versions; 0 for all that the server keeps")
	c.Flags().StringVar(&object, "object", "", "KIND/NAME.NAMESPACE: show the last versions of this object")
	cli.AddressFlag(c, &address)
	return c
}

// writer writes pushes in an output format.
type writer struct {
	out     io.Writer
	said    io.Writer // output for notes outside the format
	output  string
	headed  bool
	several bool // whether the table has a column for replicas
	color   cli.Painter
}

// page writes a page as a whole.
func (w *writer) page(p allPushes) error {
	if !w.lines() {
		cli.TellIncomplete(w.said, p.answers)
	}
	switch {
	case w.output == "name":
		return w.each(p.Pushes)
	case !w.lines():
		return w.document(p)
	}
	w.several = len(p.Replicas) > 0
	var out bytes.Buffer
	if len(p.Pushes) == 0 {
		fmt.Fprintln(&out, "There was no push yet.")
	} else if err := w.each(p.Pushes); err != nil {
		return err
	}
	for _, r := range p.unprompted() {
		printRejection(&out, r, w.color)
	}
	cli.TellIncomplete(&out, p.answers)
	_, err := w.out.Write(out.Bytes())
	return err
}

// lines reports whether the format is meant for people.
func (w *writer) lines() bool { return cli.Tabular(w.output) }

func (w *writer) document(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if w.output == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		text = append([]byte("---\n"), bytes.TrimSpace(text)...)
	}
	_, err = w.out.Write(append(text, '\n'))
	return err
}

// unsettled reports whether proxies have not answered a push yet, or may still be sent it.
func unsettled(p pushes.Push) bool { return p.Pending > 0 || p.Proxies == 0 }

func (w *writer) each(list []pushes.Push) error {
	if w.lines() {
		return w.rows(list)
	}
	for _, p := range list {
		if w.output == "name" {
			if _, err := fmt.Fprintln(w.out, p.ID); err != nil {
				return err
			}
			continue
		}
		if err := w.document(p); err != nil {
			return err
		}
	}
	return nil
}

// rows writes pushes as a table, with the heading the first time.
func (w *writer) rows(list []pushes.Push) error {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 8, 8, 3, ' ', 0)
	if !w.headed {
		if w.several {
			fmt.Fprint(table, "REPLICA\t")
		}
		if w.output == "wide" {
			fmt.Fprintln(table, "TIME\tID\tPROXIES\tBYTES\tDURATION\tTHROTTLE\tSNAPSHOT\tPREPARE\tFIRST SENT\tLAST SENT\tLAST ACK\tNACKS\tCAUSE")
		} else {
			fmt.Fprintln(table, "TIME\tID\tPROXIES\tBYTES\tDURATION\tNACKS\tCAUSE")
		}
		w.headed = true
	}
	for _, p := range list {
		if w.several {
			fmt.Fprintf(table, "%s\t", p.Replica)
		}
		fmt.Fprintf(table, "%s\t%d\t%d/%d\t%s\t%s\t", p.Time.Local().Format("15:04:05.000"), p.ID, p.Acked, p.Proxies, cli.Bytes(p.Bytes),
			duration(p.Stages.Total))
		few := 2
		if w.output == "wide" {
			few = len(p.Causes)
			s := p.Stages
			for _, d := range []*float64{&s.Throttle, &s.Snapshot, &s.Prepare, s.FirstSend, s.LastSend, s.LastAck} {
				if d == nil {
					fmt.Fprint(table, "-\t")
				} else {
					fmt.Fprintf(table, "%s\t", duration(*d))
				}
			}
		}
		fmt.Fprintf(table, "%d\t%s\n", p.Rejected, cause(p, few))
	}
	_ = table.Flush() // cannot fail on a buffer
	for _, p := range list {
		for _, r := range p.Rejections {
			printRejection(&out, r, w.color)
		}
	}
	_, err := w.out.Write(out.Bytes())
	return err
}

// cause returns the causes of a push: the first few objects, and the number of further ones.
func cause(p pushes.Push, few int) string {
	parts := lists.Map(p.Causes[:min(few, len(p.Causes))], place)
	if more := len(p.Causes) + p.More - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// place returns an object with its position.
func place(o pushes.Object) string {
	switch {
	case o.Gone:
		return o.String() + " (gone)"
	case o.Position != "":
		return o.String() + " (" + o.Position + ")"
	}
	return o.String()
}

func printRejection(w io.Writer, r pushes.Rejection, color cli.Painter) {
	who := r.Proxy
	if r.Proxies > 1 {
		who += fmt.Sprintf(" (%d times, of any proxy)", r.Proxies)
	}
	what := fmt.Sprintf("push %d", r.Push)
	if r.Push == 0 {
		what = "asked for"
	}
	fmt.Fprintf(w, "%s: %s %s %s: %s\n", what, who, color.Paint(cli.Red, "rejected"), strings.ToUpper(r.Type), r.Message)
	if len(r.Resources) > 0 {
		fmt.Fprintf(w, "  in %s\n", strings.Join(r.Resources, ", "))
	}
	const few = 6
	for _, o := range r.Sources[:min(few, len(r.Sources))] {
		changed := ""
		if o.Changed {
			changed = ", which this push changed"
		}
		fmt.Fprintf(w, "  made of %s%s\n", place(o), changed)
	}
	if more := len(r.Sources) - few; more > 0 {
		fmt.Fprintf(w, "  and of %d more\n", more)
	}
}

// duration returns milliseconds as text.
func duration(milliseconds float64) string {
	return time.Duration(milliseconds * float64(time.Millisecond)).Round(100 * time.Microsecond).String()
}
