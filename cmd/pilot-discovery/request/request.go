package request

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
)

// Command returns the command pilot-discovery request.
func Command() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "request METHOD PATH",
		Short: "Print a debug page, the metrics or the version of a running server",
		Long: `Print a debug page, the metrics or the version of the server at --address. /debug/list lists the
debug pages. Pages about one proxy need ?proxyID=POD.NAMESPACE.

Debug pages are served to callers on the server's own host. From other hosts they require the token
of a service account. In a cluster: kubectl exec -n istio-system deploy/istiod -- pilot-discovery
request GET /debug/syncz`,
		Example: `  pilot-discovery request GET /debug/list
  pilot-discovery request GET /debug/findings
  pilot-discovery request GET "/debug/config_dump?proxyID=productpage-v1.bookinfo"
  pilot-discovery request GET /metrics --address 127.0.0.1:15014`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return []string{"GET"}, cobra.ShellCompDirectiveNoFileComp
			}
			paths := []string{"/metrics", "/ready", "/version"}
			var pages []string
			if cli.AskPage(c, address, "/debug/list", &pages) {
				for _, p := range pages {
					paths = append(paths, "/debug/"+p)
				}
			}
			return paths, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			err := cli.Ask(c.Context(), args[0], address, args[1], func(body io.Reader) error {
				_, err := io.Copy(c.OutOrStdout(), body)
				return err
			})
			var answered *cli.StatusError
			if errors.As(err, &answered) && answered.Code == http.StatusNotFound {
				if page, found := strings.CutPrefix("/"+strings.TrimPrefix(args[1], "/"), "/debug/"); found {
					page, _, _ = strings.Cut(page, "?")
					var pages []string
					if cli.AskPage(c, address, "/debug/list", &pages) && !slices.Contains(pages, page) {
						return fmt.Errorf("there is no page /debug/%s%s", page, diag.NearNames(page, pages))
					}
				}
			}
			return err
		},
	}
	cli.AddressFlag(c, &address)
	return c
}
