package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// meshChecks are those of the flags that commands share which work on a directory.
func meshChecks() checks {
	return checks{
		"domain":         checkDomain,
		"clusterID":      checkClusterID,
		"istioNamespace": checkNamespace,
	}
}

// checkMeshFiles sees to it that the files are there which flags name; those that they have by default need not be.
func checkMeshFiles(flags *pflag.FlagSet) error {
	for _, name := range []string{"meshConfig", "networksConfig"} {
		if path := flags.Lookup(name).Value.String(); flags.Changed(name) && path != "" {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	return nil
}
