package charts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// Helm is one release of Helm.
type Helm struct {
	Name string // helm3 or helm4
	path string
	env  []string
}

// Helms returns Helm 4, and before it Helm 3 if HELM3 names one. They store their data in dir, and use the cluster of
// the kubeconfig if they need one.
func Helms(dir, kubeconfig string) ([]Helm, error) {
	names := []string{"helm4"}
	if os.Getenv("HELM3") != "" {
		names = []string{"helm3", "helm4"}
	}
	var all []Helm
	for _, name := range names {
		path, err := binaries.Tool(name, strings.ToUpper(name))
		if err != nil {
			return nil, err
		}
		home := filepath.Join(dir, name)
		all = append(all, Helm{name, path, []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + kubeconfig,
			"HELM_CACHE_HOME=" + home + "/cache", "HELM_CONFIG_HOME=" + home + "/config", "HELM_DATA_HOME=" + home + "/data",
		}})
	}
	return all, nil
}

// Run returns the standard output of a command. The error contains its standard error.
func (h Helm) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.path, args...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.Env = &stderr, h.env
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", h.Name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// Chart returns the path of a chart.
func Chart(name string) (string, error) {
	root, err := binaries.ModuleRoot()
	return filepath.Join(root, "charts", name), err
}
