package input

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
)

// MeshChecks are those of the flags that commands share which work on a directory.
func MeshChecks() cli.Checks {
	return cli.Checks{
		"domain":         cli.CheckDomain,
		"clusterID":      cli.CheckClusterID,
		"istioNamespace": cli.CheckNamespace,
	}
}

// CheckMeshFiles sees to it that the files are there which flags name; those that they have by default need not be.
func CheckMeshFiles(flags *pflag.FlagSet) error {
	for _, name := range []string{"meshConfig", "networksConfig"} {
		if path := flags.Lookup(name).Value.String(); flags.Changed(name) && path != "" {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	return nil
}
