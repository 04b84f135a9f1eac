package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/cmd/version"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run is main without the process.
func run(ctx context.Context, args []string, environ []string, stdout, stderr io.Writer) int {
	e := newEnv(environ)
	root := rootCommand(&e, args)
	root.SetArgs(withoutArrow(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	for _, w := range e.warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var printed failed
	if errors.As(err, &printed) {
		return int(printed)
	}
	fmt.Fprintln(stderr, "error:", inWords(c, err))
	if c.Name() == "diff" {
		return exitBroken // 1 says that something differs
	}
	return 1
}

// rootCommand returns the program with all its commands. args are those that it will be given.
func rootCommand(e *env, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "pilot-discovery",
		Short: "The control plane of a service mesh, for Istio's proxies and tools",
		Long: `The control plane of a service mesh, for Istio's proxies and tools, and the commands by which it is looked at.

Wherever a proxy is named it is as POD.NAMESPACE. Exit codes are 0, 1 where a command could not do its work, and 79 where it did and something is wrong. Colours are for terminals alone, and not where NO_COLOR is set.`,
		Example: `  pilot-discovery discovery --configDir mesh
  pilot-discovery check
  pilot-discovery analyze -A
  source <(pilot-discovery completion bash)`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				return fmt.Errorf("unknown command %q for %q: did you mean %s?", args[0], c.Name(), strings.Join(near, " or "))
			}
			return fmt.Errorf("unknown command %q for %q: %s --help lists them", args[0], c.Name(), c.Name())
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(discoveryCommand(e, args), validateCommand(e), analyzeCommand(e), translateCommand(e), injectCommand(e), bootstrapCommand(), requestCommand(), proxyStatusCommand(), pushesCommand(e), checkCommand(e), explainCommand(), diffCommand(e), whyCommand(e), migrateCommand(e), loadCommand(), tokenCommand(), version.Command("pilot-discovery"))
	root.SetFlagErrorFunc(suggestFlag)
	root.PersistentFlags().String("color", terminal.Modes()[0], strings.Join(terminal.Modes(), ", "))
	completeFlag(root, "color", terminal.Modes()...)
	root.SuggestionsMinimumDistance = 2
	root.InitDefaultCompletionCmd(args...)
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = root.Args, root.RunE // else it prints its help for a shell that it does not know
		} else if c.ValidArgsFunction == nil && c.ValidateArgs([]string{"x"}) != nil {
			c.ValidArgsFunction = cobra.NoFileCompletions // it takes no argument, and shells offer files else
		}
	}
	return root
}
