package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
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

// names returns the names of what a cluster has of a resource, of Pods and Services as NAME.NAMESPACE, for completions:
// without a cluster there are none.
func (f *clusterFlags) names(c *cobra.Command, resource string) []string {
	config, err := f.connection()
	if err != nil {
		return nil
	}
	config.Timeout = completionTimeout
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	const most = 1000
	list, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{Limit: most})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		name := list.Items[i].Name
		if ns := list.Items[i].Namespace; ns != "" {
			name += "." + ns
		}
		names = append(names, name)
	}
	return names
}

// completeArgument has shells complete the arguments of a command, by their place.
func completeArgument(c *cobra.Command, names ...func(c *cobra.Command) []string) {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names[len(args)](c), cobra.ShellCompDirectiveNoFileComp
	}
}

// complete has shells complete what diff is asked about.
func (f *diffFlags) complete(c *cobra.Command) {
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	if err := c.RegisterFlagCompletionFunc("against", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if strings.HasPrefix(typed, "git:") || typed != "" && strings.HasPrefix("cluster", typed) {
			return []string{"cluster", "git:HEAD"}, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"cluster", "git:HEAD"}, cobra.ShellCompDirectiveDefault
	}); err != nil {
		panic(err) // there is no such flag, or it has a completion
	}
	completeWith(c, "delete", func(c *cobra.Command, args []string) []string {
		if len(args) == 0 && (f.against == "" || f.against == "cluster" || strings.HasPrefix(f.against, "git:")) {
			return nil
		}
		f.configDir = f.against
		if len(args) > 0 {
			f.configDir = args[0]
		}
		i, err := readOnce(c, f.worldFlags, ingest.Options{})
		if err != nil {
			return nil
		}
		var list []string
		for _, k := range sortedKeys(i.All()) {
			name := k.Kind.Name + "/" + k.Name
			if !k.Kind.Cluster {
				name += "." + k.Namespace
			}
			list = append(list, name)
		}
		return list
	})
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
