package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker: see the Makefile.
var version string

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// failed is an error that has been printed already: only the exit code is left.
type failed struct{ code int }

func (failed) Error() string { return "failed" }

// run is main without the process.
func run(ctx context.Context, args []string, environ []string, stdout, stderr io.Writer) int {
	e := newEnv(environ)
	root := &cobra.Command{
		Use:           "pilot-discovery",
		Short:         "The control plane of a service mesh, for Istio's proxies and tools",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(discoveryCommand(&e, args), validateCommand(&e), analyzeCommand(&e), translateCommand(&e), injectCommand(&e), bootstrapCommand(), requestCommand(), proxyStatusCommand(), loadCommand(), tokenCommand(), versionCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	for _, w := range e.warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if err := root.ExecuteContext(ctx); err != nil {
		var printed failed
		if errors.As(err, &printed) {
			return printed.code
		}
		fmt.Fprintln(stderr, "error:", err)
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
