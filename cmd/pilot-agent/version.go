package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
)

// build is what `version -o json` prints, in the form of Istio's tools.
type build struct {
	Version   string `json:"version" yaml:"version"`
	GoVersion string `json:"golang_version" yaml:"golang_version"`
	Platform  string `json:"platform" yaml:"platform"`
}

func versionCommand() *cobra.Command {
	var short bool
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b := build{tag(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			all := map[string]build{"clientVersion": b}
			var text []byte
			var err error
			switch {
			case output == "json":
				text, err = json.MarshalIndent(all, "", "  ")
				text = append(text, '\n')
			case output == "yaml":
				text, err = yamlv3.Marshal(all)
			case output != "":
				return fmt.Errorf("unknown output format %q: json or yaml", output)
			case short:
				text = []byte(b.Version + "\n")
			default:
				text = fmt.Appendf(nil, "version %s, %s, %s\n", b.Version, b.GoVersion, b.Platform)
			}
			if err != nil {
				return fmt.Errorf("write the version: %w", err)
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().BoolVarP(&short, "short", "s", false, "print the version alone")
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return c
}
