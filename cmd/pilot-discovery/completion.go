package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/pilot/debug"
)

// completionTimeout is how long a shell may wait for names.
const completionTimeout = 2 * time.Second

// live reads a page of a server for a completion, and reports whether there was one: without a server nothing is
// completed.
func live(c *cobra.Command, address, path string, into any) bool {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	return ask(ctx, http.MethodGet, address, path, func(body io.Reader) error { return json.NewDecoder(body).Decode(into) }) == nil
}

// connected returns the names of the proxies that are connected to a server.
func connected(c *cobra.Command, address string) []string {
	var all []debug.ProxyStatus
	live(c, address, "/debug/syncz", &all)
	names := []string{}
	for _, p := range all {
		names = append(names, p.ProxyID)
	}
	return names
}

// completeWith has shells complete a flag by names that are looked up.
func completeWith(c *cobra.Command, name string, names func(c *cobra.Command, args []string) []string) {
	err := c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(c, args), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag, or it has a completion
	}
}

// completeProxies has shells complete a flag by the proxies that are connected to the server at an address.
func completeProxies(c *cobra.Command, name string, address *string) {
	completeWith(c, name, func(c *cobra.Command, _ []string) []string { return connected(c, *address) })
}
