package version

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// APILevel is the Istio release whose API and behaviour this follows, and this project's own count. The release comes
// first, so that istioctl's check for version skew works.
const APILevel = "1.31.1-lite.1"

// Own reports whether the labels of an object say that a chart of this project made it.
func Own(labels map[string]string) bool {
	return strings.Contains(labels[names.LabelAppVersion], "-lite")
}

// linked is the version that the linker sets, as the Makefile says.
var linked string

// Tag returns the version of this program: the linked one, or the commit that the Go tool recorded.
func Tag() string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return APILevel + "-" + s.Value[:12]
			}
		}
	}
	return APILevel + "-unknown"
}

// build is what `version -o json` prints, in the form of Istio's tools.
type build struct {
	Version   string `json:"version"`
	GoVersion string `json:"golang_version"`
	Platform  string `json:"platform"`
}

// Command returns the command of a program that prints its version.
func Command(program string) *cobra.Command {
	var short bool
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "Print the version of this program: the release of Istio whose API and behaviour it follows, and its own.",
		Example: strings.ReplaceAll(`  PROGRAM version
  PROGRAM version --short
  PROGRAM version -o json`, "PROGRAM", program),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			b := build{Tag(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			var text []byte
			var err error
			switch {
			case output == "json":
				text, err = json.MarshalIndent(map[string]build{"clientVersion": b}, "", "  ")
				text = append(text, '\n')
			case output == "yaml":
				var sorted bytes.Buffer
				e := yaml.NewEncoder(&sorted)
				e.SetIndent(2)
				err = e.Encode(map[string]map[string]string{
					"clientVersion": {"version": b.Version, "golang_version": b.GoVersion, "platform": b.Platform},
				})
				text = sorted.Bytes()
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
	if err := c.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
	return c
}
