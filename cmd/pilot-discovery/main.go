package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/analyze"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/bootstrap"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/check"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/diff"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/discovery"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/explain"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/inject"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/load"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/migrate"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/proxystatus"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/pushes"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/request"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/token"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/translate"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/wait"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/why"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/cmd/version"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run is main without global state.
func run(ctx context.Context, args []string, environ []string, stdout, stderr io.Writer) int {
	e := env.New(environ)
	root := rootCommand(&e, args)
	root.SetArgs(why.WithoutArrow(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	for _, w := range e.Warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var printed cli.Exit
	if errors.As(err, &printed) {
		return int(printed)
	}
	fmt.Fprintln(stderr, "error:", terminal.Lines(cli.Usage(c, err).Error()))
	if c.Name() == "diff" {
		return diff.Broken // 1 means that there is a difference
	}
	return 1
}

// rootCommand returns the program with all its commands. args are the arguments with which it is executed.
func rootCommand(e *env.Env, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "pilot-discovery",
		Short: "The control plane of a service mesh, for Istio's proxies and tools",
		Long: `The control plane of a service mesh, for Istio's proxies and tools, and the commands to inspect it.

Name proxies as POD.NAMESPACE. A command exits with 0 if it succeeds, with 1 if it fails, and with
79 if it succeeds and found problems. Output has colours only on a terminal, and not if NO_COLOR is
set.`,
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
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run:", []*cobra.Command{discovery.Command(e, args), inject.Command(e), bootstrap.Command()}},
		{"Look:", []*cobra.Command{check.Command(e), proxystatus.Command(), pushes.Command(e), wait.Command(e), why.Command(e),
			translate.Command(e), request.Command(), explain.Command()}},
		{"Before a change:", []*cobra.Command{analyze.ValidateCommand(e), analyze.Command(e), diff.Command(e)}},
		{"Move from istiod:", []*cobra.Command{migrate.Command(e)}},
		{"Tokens and load:", []*cobra.Command{token.Command(), load.Command()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.AddCommand(version.Command("pilot-discovery"))
	root.SetFlagErrorFunc(cli.SuggestFlag)
	root.PersistentFlags().String("color", terminal.Modes()[0], strings.Join(terminal.Modes(), ", "))
	cli.CompleteFlag(root, "color", terminal.Modes()...)
	root.SuggestionsMinimumDistance = 2
	root.InitDefaultCompletionCmd(args...)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(c *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); err != nil || found == root {
					return root.Args(root, args)
				}
				return nil
			}
		} else if c.Name() == "completion" {
			c.Args, c.RunE = root.Args, root.RunE // otherwise it prints its help for an unknown shell
		} else if c.ValidArgsFunction == nil && c.ValidateArgs([]string{"x"}) != nil {
			c.ValidArgsFunction = cobra.NoFileCompletions // it takes no argument, for which shells would offer files
		}
	}
	return root
}
