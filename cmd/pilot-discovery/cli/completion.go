package cli

import (
	"github.com/spf13/cobra"
)

// CompleteArgument adds completions to the arguments of a command, by their index.
func CompleteArgument(c *cobra.Command, names ...func(c *cobra.Command) []string) {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names[len(args)](c), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteWith adds completions to a flag, by a function that looks names up.
func CompleteWith(c *cobra.Command, name string, names func(c *cobra.Command, args []string) []string) {
	err := c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(c, args), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag, or it already has a completion
	}
}
