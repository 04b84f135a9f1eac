package proxystatus

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
)

// Command returns the command pilot-discovery proxy-status.
func Command() *cobra.Command {
	var output string
	var watch bool
	var address string
	c := &cobra.Command{
		Use:   "proxy-status [NAME.NAMESPACE]",
		Short: "Show which proxies are connected to the control plane, and whether they are in sync",
		Long: `Show which proxies are connected to the control plane, and whether they have accepted their
configuration. The server at --address asks the other replicas of its Service. Replicas that do not
answer, or have another version, are named with the reason: below the table, or on standard error
with other formats.

  SYNCED    the proxy has acknowledged the last response
  STALE     it has not acknowledged it yet
  ERROR     it has rejected it
  NOT SENT  it has asked, and there is nothing for it
  -         the proxy does not ask for it

The time since the last response is in parentheses.`,
		Example: `  pilot-discovery proxy-status
  pilot-discovery proxy-status productpage-v1.bookinfo
  pilot-discovery proxy-status -o wide --watch
  pilot-discovery proxy-status -o json`,
		Aliases: []string{"ps"},
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return cli.Connected(c, address), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Watched(c, watch, func(w io.Writer) error {
				list, err := debug.AskAll(c.Context(), cli.Pages(address, output), "syncz")
				if err != nil {
					return err
				}
				all, err := debug.ReadProxies(list)
				if err != nil {
					return err
				}
				err = ShowProxies(w, all, args, output)
				if err != nil || !cli.Tabular(output) {
					w = c.ErrOrStderr()
				}
				cli.TellIncomplete(w, list)
				return err
			})
		},
	}
	cli.AddressFlag(c, &address)
	cli.OutputFlag(c, &output, cli.ListFormats()...)
	cli.WatchFlag(c, &watch)
	return c
}

// ShowProxies prints all proxies, or the one that args name, in a format.
func ShowProxies(w io.Writer, all []debug.ProxyStatus, args []string, output string) error {
	var out bytes.Buffer
	if cli.Tabular(output) {
		if len(args) == 1 {
			if err := printProxy(&out, all, args[0], time.Now()); err != nil {
				return err
			}
		} else {
			printProxies(&out, all, output == "wide", time.Now())
		}
		_, err := w.Write(out.Bytes())
		return err
	}
	if len(args) == 1 {
		one := slices.DeleteFunc(slices.Clone(all), func(p debug.ProxyStatus) bool { return p.ProxyID != args[0] })
		if len(one) == 0 {
			return notConnected(all, args[0])
		}
		all = one
	}
	if output == "name" {
		for _, p := range all {
			fmt.Fprintln(&out, p.ProxyID)
		}
		_, err := w.Write(out.Bytes())
		return err
	}
	return cli.PrintValue(w, append([]debug.ProxyStatus{}, all...), output)
}

// notConnected is the error for a proxy that is not connected.
func notConnected(all []debug.ProxyStatus, name string) error {
	connected := lists.Map(all, func(p debug.ProxyStatus) string { return p.ProxyID })
	return fmt.Errorf("no proxy %s is connected here%s", cli.Quoted(name), diag.NearNames(name, connected))
}

// shown are the types that have a column, in istioctl's order.
func shown() []string { return []string{"cds", "lds", "eds", "rds"} }

func printProxies(w io.Writer, all []debug.ProxyStatus, wide bool, now time.Time) {
	if len(all) == 0 {
		fmt.Fprintln(w, "No proxy is connected.")
		return
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	columns := shown()
	if wide {
		columns = append(columns, "ecds", "sds", "nds")
	}
	fmt.Fprintf(table, "NAME\tCLUSTER\tTYPE\tVERSION\t%s\tCONNECTED", strings.ToUpper(strings.Join(columns, "\t")))
	if wide {
		fmt.Fprint(table, "\tADDRESS")
	}
	several := all[0].Replica != ""
	if several {
		fmt.Fprint(table, "\tREPLICA")
	}
	fmt.Fprintln(table)
	for _, p := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s", p.ProxyID, cmp.Or(p.ClusterID, "-"), p.ProxyType, cmp.Or(p.Version, "-"))
		for _, name := range columns {
			fmt.Fprintf(table, "\t%s", stateOf(p, name, now))
		}
		fmt.Fprintf(table, "\t%s", age(now, p.Connected))
		if wide {
			fmt.Fprintf(table, "\t%s", p.Address)
		}
		if several {
			fmt.Fprintf(table, "\t%s", p.Replica)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // cannot fail on a buffer
	for _, p := range all {
		printTrouble(w, p, now)
	}
}

func stateOf(p debug.ProxyStatus, name string, now time.Time) string {
	for _, t := range p.Resources {
		if t.Type != name {
			continue
		}
		if t.SentTime == nil {
			return string(t.State)
		}
		return fmt.Sprintf("%s (%s)", t.State, age(now, *t.SentTime))
	}
	return "-"
}

// printTrouble prints the resources that the proxy rejected or waits for.
func printTrouble(w io.Writer, p debug.ProxyStatus, now time.Time) {
	for _, t := range types(p) {
		if t.LastError != "" {
			fmt.Fprintf(w, "\n%s rejected %s", p.ProxyID, strings.ToUpper(t.Type))
			if t.ErrorTime != nil {
				fmt.Fprintf(w, " %s ago", age(now, *t.ErrorTime))
			}
			fmt.Fprintf(w, ": %s\n", strings.TrimSpace(t.LastError))
		}
	}
	if p.Waits != "" {
		fmt.Fprintf(w, "\n%s waits: %s\n", p.ProxyID, p.Waits)
	}
}

// types returns the types to which the proxy subscribes, sorted by name.
func types(p debug.ProxyStatus) []debug.TypeStatus {
	return slices.SortedFunc(maps.Values(p.Resources), func(a, b debug.TypeStatus) int { return cmp.Compare(a.Type, b.Type) })
}

func printProxy(w io.Writer, all []debug.ProxyStatus, name string, now time.Time) error {
	found := false
	for _, p := range all {
		if p.ProxyID != name {
			continue
		}
		found = true
		fmt.Fprintf(w, "%s: %s %s of cluster %s, connected from %s for %s", p.ProxyID, p.ProxyType, cmp.Or(p.Version, "of unknown version"),
			cmp.Or(p.ClusterID, "-"), p.Address, age(now, p.Connected))
		if p.Replica != "" {
			fmt.Fprintf(w, ", to %s", p.Replica)
		}
		fmt.Fprint(w, "\n\n")
		table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		fmt.Fprintln(table, "TYPE\tSTATE\tSENT\tACKNOWLEDGED\tSUBSCRIBED TO")
		for _, t := range types(p) {
			at := func(t *time.Time) string {
				if t == nil {
					return "never"
				}
				return age(now, *t) + " ago"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", strings.ToUpper(t.Type), t.State, at(t.SentTime), at(t.AckedTime), t.Subscribed)
		}
		_ = table.Flush() // cannot fail on a buffer
		printTrouble(w, p, now)
	}
	if !found {
		return notConnected(all, name)
	}
	return nil
}

// age returns the time since then in whole seconds.
func age(now, then time.Time) string { return max(0, now.Sub(then)).Truncate(time.Second).String() }
