package input

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
)

// MeshChecks returns the checks of the flags that commands share for reading a directory.
func MeshChecks() cli.Checks {
	return cli.Checks{
		"domain":         cli.CheckDomain,
		"clusterID":      cli.CheckClusterID,
		"istioNamespace": cli.CheckNamespace,
	}
}

// CheckMeshFiles checks that the files that flags name exist. Files that are defaults may be missing.
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
