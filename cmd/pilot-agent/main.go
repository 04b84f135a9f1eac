package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/agent/capture"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// exit is an error with the exit code of the process. The cause has been printed already.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit with %d", e.code) }

// run runs the command line and returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := rootCommand(args, environ)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		var code exit
		if errors.As(err, &code) {
			return code.code
		}
		fmt.Fprintln(stderr, "error:", err)
		if errors.Is(err, capture.ErrNotCaptured) {
			return capture.ExitNotCaptured
		}
		return 1
	}
	return 0
}

func rootCommand(args, environ []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "pilot-agent",
		Short:         "Run beside an Envoy: manage its bootstrap, certificates, configuration and process",
		Example:       "  pilot-agent proxy sidecar\n  pilot-agent request GET /config_dump",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(proxyCommand(args, environ), capture.Command(os.Getenv), waitCommand(), requestCommand(), version.Command("pilot-agent"))
	return root
}
