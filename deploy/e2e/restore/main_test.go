package restore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// Environment variables with the paths of the CustomResourceDefinitions and of docs/backup.md.
const (
	crdsVar     = "E2E_CRDS"
	documentVar = "E2E_DOCUMENT"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

func prepare(ctx context.Context, dir string) ([]string, error) {
	environ, err := suite.Programs(ctx, dir)
	if err != nil {
		return nil, err
	}
	found, err := cluster.Find()
	if err != nil {
		return nil, err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return nil, err
	}
	root, err := binaries.ModuleRoot()
	if err != nil {
		return nil, err
	}
	crds, document := filepath.Join(dir, "crds"), filepath.Join(dir, "backup.md")
	err = errors.Join(os.CopyFS(crds, os.DirFS(filepath.Join(root, "charts", "base", "files", "crds"))),
		binaries.Copy(document, filepath.Join(root, "docs", "backup.md")))
	return append(append(environ, there.Environ()...), crdsVar+"="+crds, documentVar+"="+document), err
}
