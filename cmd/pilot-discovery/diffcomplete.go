package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

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
