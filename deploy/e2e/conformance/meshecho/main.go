package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

func main() {
	run := server
	if filepath.Base(os.Args[0]) == "client" {
		run = client
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// flags returns a set that fails with an error.
func flags(name string) *pflag.FlagSet { return pflag.NewFlagSet(name, pflag.ContinueOnError) }
