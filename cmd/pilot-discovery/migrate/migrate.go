package migrate

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/analyze"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

type flags struct {
	analyze.Flags
	e      *env.Env
	watch  bool
	values []string // files of values or IstioOperators, as [CHART=]FILE
}

// Command returns the command pilot-discovery migrate.
func Command(e *env.Env) *cobra.Command {
	f := &flags{e: e}
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Print what a move from istiod to this control plane would change, and what prevents it",
		Long: `Print a verdict before a move from istiod: which objects have the same effect here as under istiod,
which do not and why; which parts of the mesh configuration and of istiod's own environment and
arguments have no effect here; and which webhooks, ports, proxies, remote clusters and parts of an
ambient mesh exist.

It reads the cluster that kubectl would use, or files with the objects of a cluster. It changes
nothing.

With --values it reads values files of Istio's charts (base, istiod, gateway, cni) or IstioOperators,
and no cluster unless -f or a kubeconfig is named: it says which values have no effect here, another
place, or are refused by this control plane's charts. -o values prints the values for these charts,
with what a profile sets.

-o table shortens long lists of points that do not prevent the move, and -o wide prints them whole.
-o name prints the objects that prevent it.

docs/migrate.md describes the migration and the way back.

The exit code is 0 if nothing prevents the move, 79 if something does, and 1 if the command fails.`,
		Example: `  pilot-discovery migrate
  kubectl get deploy,ds,svc,pod,ns,crd,mutatingwebhookconfiguration,istio-io,gateway-api,cm -A -o yaml | pilot-discovery migrate -f -
  helm get values istiod -n istio-system | pilot-discovery migrate --values -
  pilot-discovery migrate --values istio-operator.yaml -o values`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.RegisterMesh(flags, e, "istioNamespace", "i")
	flags.StringArrayVarP(&f.Files, "filename", "f", nil,
		"file or directory with the objects of a cluster, or - for the standard input, instead of the cluster; may be repeated")
	flags.StringArrayVar(&f.values, "values", nil, "file with values of one of Istio's charts or with IstioOperators, or - for the "+
		"standard input; CHART=FILE if its names do not say the chart; may be repeated")
	cli.OutputFlag(c, &f.Output, append(cli.ListFormats(), "values")...)
	cli.WatchFlag(c, &f.watch)
	f.RegisterCluster(c, e)
	return c
}

func (f *flags) run(c *cobra.Command) error {
	color, err := cli.Painted(c, f.Env.Getenv)
	if err != nil {
		return err
	}
	if f.watch && slices.Contains(slices.Concat(f.Files, f.values), "-") {
		return cli.ErrOneInput
	}
	if f.Output == "values" && len(f.values) == 0 {
		return errors.New("-o values: name files with values by --values")
	}
	return cli.Watched(c, f.watch, func(w io.Writer) error { return f.once(c, color, w) })
}

// once prints the verdict once.
func (f *flags) once(c *cobra.Command, color cli.Painter, w io.Writer) (err error) {
	v := &migration.Verdict{}
	mesh := len(f.values) == 0 || len(f.Files) > 0 || c.Flags().Changed("kubeconfig") || c.Flags().Changed("context")
	if mesh {
		if v, err = f.mesh(c); err != nil {
			return err
		}
	}
	var releases []*release
	for _, name := range f.values {
		list, points, err := readValues(name, c.InOrStdin())
		if err != nil {
			return err
		}
		v.Add("IstioOperator", points...)
		releases = append(releases, list...)
	}
	judged, err := addValues(v, releases)
	switch {
	case err != nil:
		return err
	case f.Output == "values":
		err = writeValues(w, judged)
	default:
		err = write(w, v, f.Output, color, mesh)
	}
	if err != nil {
		return err
	}
	if v.InTheWay > 0 {
		return cli.Exit(cli.Found)
	}
	return nil
}

// mesh returns the verdict about the objects of a cluster or of files.
func (f *flags) mesh(c *cobra.Command) (*migration.Verdict, error) {
	o := ingest.Options{Revision: f.Revision, Limits: limits.Default()}
	var around migration.Around
	var err error
	if len(f.Files) > 0 {
		if o.Texts, err = file.Read(f.Files, c.InOrStdin(), o.Limits); err != nil {
			return nil, err
		}
		o.Texts.Namespace = f.Namespace
		for _, u := range o.Texts.Objects() {
			around.Objects = append(around.Objects, migration.Object{Unstructured: u})
		}
	} else {
		f.UseKube, f.Elsewhere = true, "files by -f"
		if err := f.ReadCluster(c, &o, false); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(c.Context(), f.Timeout)
		defer cancel()
		if around, err = f.readAround(ctx); err != nil {
			return nil, f.TooLong(err)
		}
	}
	istiods := revisionsOf(around.Objects)
	if len(istiods) == 1 && f.Revision == "" {
		o.Revision = istiods[0] // the revision whose configuration is in force now
	}
	world := f.World
	world.ScopedGateways = world.ScopedGateways || scopeGateways(around.Objects)
	i, err := input.Read(c, world, o)
	if err != nil {
		return nil, f.TooLong(err)
	}
	v := migration.Judge(i, f.Revision, istiods)
	for _, o := range around.Objects {
		if c, ok := discoveryOf(o); ok {
			addIstiod(v, o, c, around.Objects, len(f.Files) == 0 && !slices.Contains(around.Forbidden, "secrets"))
		} else if o.GetKind() == "ConfigMap" {
			addTemplates(v, o, istiods)
		}
	}
	v.AddAround(around)
	return v, nil
}
