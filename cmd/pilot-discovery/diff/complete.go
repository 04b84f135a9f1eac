package diff

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// complete adds completions to the arguments and flags of diff.
func (f *flags) complete(c *cobra.Command) {
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
		panic(err) // there is no such flag, or it already has a completion
	}
	cli.CompleteWith(c, "delete", func(c *cobra.Command, args []string) []string {
		if len(args) == 0 && (f.against == "" || f.against == "cluster" || strings.HasPrefix(f.against, "git:")) {
			return nil
		}
		f.ConfigDir = f.against
		if len(args) > 0 {
			f.ConfigDir = args[0]
		}
		i, err := input.Read(c, f.World, ingest.Options{})
		if err != nil {
			return nil
		}
		var list []string
		for _, k := range input.SortedKeys(i.All()) {
			name := k.Kind.Name + "/" + k.Name
			if !k.Kind.Cluster {
				name += "." + k.Namespace
			}
			list = append(list, name)
		}
		return list
	})
}
