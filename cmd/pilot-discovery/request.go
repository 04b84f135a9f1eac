package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func requestCommand() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "request METHOD PATH",
		Short: "Ask the server that runs here for one of its debug pages, its metrics or its version",
		Long: `Ask the server that runs here for one of its debug pages, its metrics or its version, and print what it answers. /debug/list names the debug pages; those of one proxy want ?proxyID=POD.NAMESPACE.

Debug pages are answered to callers on the server's own host; from elsewhere they want the token of a service account. In a cluster: kubectl exec -n istio-system deploy/istiod -- pilot-discovery request GET /debug/syncz`,
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
			if live(c, address, "/debug/list", &pages) {
				for _, p := range pages {
					paths = append(paths, "/debug/"+p)
				}
			}
			return paths, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			return ask(c.Context(), args[0], address, args[1], func(body io.Reader) error {
				_, err := io.Copy(c.OutOrStdout(), body)
				return err
			})
		},
	}
	addressFlag(c, &address)
	return c
}

// addressFlag adds the flag that names the server to ask.
func addressFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "address", "127.0.0.1:15014", "host and port of the server's --monitoringAddr")
}

// ask sends a request to a server on this host, and passes the answer to read.
func ask(ctx context.Context, method, address, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, strings.ToUpper(method), "http://"+address+"/"+strings.TrimPrefix(path, "/"), http.NoBody)
	if err != nil {
		return err
	}
	// No proxy of the environment: the server is on this host.
	client := &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w (is the server's --monitoringAddr %s?)", err, address)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return read(resp.Body)
}
