package explain

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/diag/explain"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// Command returns the command pilot-discovery explain.
func Command() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "explain [CODE...]",
		Short: "Explain a finding code, with an example and the remedy",
		Long: `Explain a finding code, with an example and the remedy. The code is in brackets at the end of a
finding. The whole line of a finding may be given instead. Without a code, all codes are listed.

Findings are printed by validate, analyze and check, shown at /debug/findings of a server, and
written into the statuses of objects.`,
		Example: `  pilot-discovery explain
  pilot-discovery explain IST0101
  pilot-discovery explain "error: VirtualService shop/web: spec.hosts: no such host [IST0101]"
  pilot-discovery explain NoEndpoints -o json`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var codes []string
			for _, e := range explain.All() {
				codes = append(codes, cobra.CompletionWithDesc(e.Code, firstSentence(e.Meaning)))
			}
			return codes, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			list := explain.All()
			if len(args) > 0 {
				list = nil
			}
			for _, code := range args {
				if m := regexp.MustCompile(`\[([A-Za-z0-9]+)\]\s*$`).FindStringSubmatch(code); m != nil {
					code = m[1]
				}
				e, near, found := explain.Find(code)
				if !found && near != "" {
					return fmt.Errorf("no finding has the code %s: %s", cli.Quoted(code), diag.DidYouMean(near))
				} else if !found {
					return fmt.Errorf("no finding has the code %s: pilot-discovery explain lists all", cli.Quoted(code))
				}
				list = append(list, e)
			}
			return printEntries(c.OutOrStdout(), list, output, len(args) == 0)
		},
	}
	cli.OutputFlag(c, &output, cli.ListFormats()...)
	return c
}

func printEntries(w io.Writer, list []explain.Entry, output string, all bool) error {
	switch output {
	case "json", "yaml":
		return cli.PrintValue(w, list, output)
	case "name":
		for _, e := range list {
			fmt.Fprintln(w, e.Code)
		}
		return nil
	}
	if all && output == "table" {
		t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		fmt.Fprintln(t, "CODE\tMEANING")
		for _, e := range list {
			fmt.Fprintf(t, "%s\t%s\n", e.Code, withoutLinks(firstSentence(e.Meaning)))
		}
		return t.Flush()
	}
	for i, e := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n\n%s\n\n", strings.TrimSpace(e.Code+" "+e.Name), terminal.Wrap(withoutLinks(e.Meaning), 100))
		if e.Message != "" {
			fmt.Fprintf(w, "Example: %s\n\n", e.Message)
		} else {
			fmt.Fprintf(w, "Example:\n\n  %s\n\n", strings.ReplaceAll(strings.TrimSpace(e.YAML), "\n", "\n  "))
		}
		fmt.Fprintf(w, "%s\n", terminal.Wrap("Fix: "+withoutLinks(e.Fix), 100))
	}
	return nil
}

// withoutLinks returns a text with the words of its links, whose targets are pages of the documentation.
func withoutLinks(text string) string { return links().ReplaceAllString(text, "$1") }

var links = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[([^\]]+)\]\([^)\s]+\)`) })

// firstSentence returns the first sentence of a text.
func firstSentence(text string) string {
	first, _, found := strings.Cut(text, ". ")
	if found {
		return first + "."
	}
	return text
}
