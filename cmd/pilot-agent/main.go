package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/pilot/agent/capture"
)

// version is set by the linker: see the Makefile.
var version string

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// exit is an error that says with which code the process ends. What went wrong has been printed already.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit with %d", e.code) }

// run is main without the process. It returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "pilot-agent",
		Short:         "Runs beside an Envoy: its bootstrap, certificates, configuration and life",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(proxyCommand(args, environ), capture.Command(os.Getenv), waitCommand(), requestCommand(), versionCommand())
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

// tag is the version of this binary. Without the Makefile it is what the Go tool recorded.
func tag() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return apiLevel + "-" + s.Value[:12]
			}
		}
	}
	return apiLevel + "-unknown"
}

// apiLevel is the Istio release whose API and behaviour this follows, and this project's own count.
const apiLevel = "1.31.1-lite.1"
