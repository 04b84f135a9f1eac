package wait

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// readFiles returns the objects in files of kinds that the control plane reads. Objects of other kinds have a warning.
// It fails if an object has an error, because no server would have it in force as it is written.
func readFiles(ctx context.Context, stdin io.Reader, files []string, namespace string, warnings io.Writer) ([]*kinds.Object, error) {
	l := limits.Default()
	texts, err := file.Read(files, stdin, l)
	if err != nil {
		return nil, err
	}
	texts.Namespace = namespace
	objects, found, err := inspect.Texts(ctx, ingest.Options{Limits: l}, texts)
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, d := range found {
		if d.Severity == diag.Error {
			wrong = append(wrong, d.String())
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("the files have errors, and are not in force as they are written:\n%s", strings.Join(wrong, "\n"))
	}
	for _, u := range texts.Objects() {
		if kinds.Named(u.GroupVersionKind().Group, u.GetKind()) == nil {
			cli.Warn(warnings, "%s %s is of a kind that no proxy is configured by: it is not awaited", u.GetKind(), u.GetName())
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s: the files contain no object of a known kind", strings.Join(files, ", "))
	}
	return objects, nil
}

// current returns the version of an object in the cluster.
func (f *flags) current(ctx context.Context, k kinds.Key) (crd.Version, error) {
	config, err := f.Connection()
	if err != nil {
		return crd.Version{}, err
	}
	return crd.Current(ctx, config, k)
}
