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
	back   bool
	chart  string   // chart whose values are written, as CHART or CHART/NAME; all if it is empty
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
arguments have no effect here; which webhooks, ports, proxies, remote clusters and parts of an
ambient mesh exist; and which values of Istio's charts have no effect here, another place, or are
refused by this control plane's charts.

It reads the cluster that kubectl would use, or files with the objects of a cluster. It changes
nothing. It takes the values that Helm stored, the values of IstioOperators in the files, or the values
that Istio's chart keeps in the ConfigMap values, and adds settings with which the control plane runs
besides them. Without such values, it takes the settings of the Deployment, of its ConfigMaps and of the
objects beside them.

With --values it reads values files of Istio's charts (base, istiod, gateway, cni) or IstioOperators,
and no cluster unless -f or a kubeconfig is named.

-o values prints the values for this control plane's charts, with what a profile sets. Helm takes the
values of one chart at a time, which --chart names. With --back the command reads this control plane
in place of istiod, and prints what Istio's charts and istiod do not have, or the values for Istio's
charts.

-o table shortens long lists of points that do not prevent the move, and -o wide prints them whole.
-o name prints the objects that prevent it.

docs/migrate.md describes the migration and the way back.

The exit code is 0 if nothing prevents the move, 79 if something does, and 1 if the command fails.`,
		Example: `  pilot-discovery migrate
  kubectl get deploy,ds,svc,pod,ns,crd,mutatingwebhookconfiguration,istio-io,gateway-api,cm -A -o yaml | pilot-discovery migrate -f -
  helm get values istiod -n istio-system | pilot-discovery migrate --values -
  pilot-discovery migrate -o values --chart istiod >istiod.yaml
  pilot-discovery migrate --values istio-operator.yaml -o values
  pilot-discovery migrate --back -o values`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.RegisterMesh(flags, e, "istioNamespace", "i")
	flags.StringArrayVarP(&f.Files, "filename", "f", nil,
		"file or directory with the objects of a cluster, or - for the standard input, instead of the cluster; may be repeated")
	flags.StringArrayVar(&f.values, "values", nil, "file with values of one of Istio's charts or with IstioOperators, or - for the "+
		"standard input; CHART=FILE if its names do not say the chart; may be repeated")
	flags.BoolVar(&f.back, "back", false, "move back: from this control plane to Istio's charts")
	flags.StringVar(&f.chart, "chart", "", "chart whose values -o values prints, as CHART, or as CHART/NAME where several releases have it")
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
	if f.chart != "" && f.Output != "values" {
		return errors.New("--chart: it is for -o values")
	}
	return cli.Watched(c, f.watch, func(w io.Writer) error { return f.once(c, color, w) })
}

// once prints the verdict once.
func (f *flags) once(c *cobra.Command, color cli.Painter, w io.Writer) (err error) {
	v := &migration.Verdict{}
	mesh := len(f.values) == 0 || len(f.Files) > 0 || c.Flags().Changed("kubeconfig") || c.Flags().Changed("context")
	var releases []*release
	if mesh {
		if v, releases, err = f.mesh(c); err != nil {
			return err
		}
	}
	for _, name := range f.values {
		list, points, err := readValues(name, c.InOrStdin())
		if err != nil {
			return err
		}
		for _, r := range list {
			r.back = f.back
		}
		v.Add("IstioOperator", points...)
		releases = append(releases, list...)
	}
	judged, err := addValues(v, releases)
	switch {
	case err != nil:
		return err
	case f.Output == "values":
		err = writeValues(w, judged, f.chart)
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

// mesh returns the verdict about the objects of a cluster or of files, and the releases in it.
func (f *flags) mesh(c *cobra.Command) (*migration.Verdict, []*release, error) {
	o := ingest.Options{Revision: f.Revision, Limits: limits.Default()}
	var around migration.Around
	store := &helmStore{}
	var err error
	if len(f.Files) > 0 {
		if o.Texts, err = file.Read(f.Files, c.InOrStdin(), o.Limits); err != nil {
			return nil, nil, err
		}
		o.Texts.Namespace = f.Namespace
		for _, u := range o.Texts.Objects() {
			x := migration.Object{Unstructured: u}
			if isStored(x) {
				store.take(x)
			}
			around.Objects = append(around.Objects, x)
		}
	} else {
		f.UseKube, f.Elsewhere = true, "files by -f"
		if err := f.ReadCluster(c, &o, false); err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithTimeout(c.Context(), f.Timeout)
		defer cancel()
		if around, store, err = f.readAround(ctx); err != nil {
			return nil, nil, f.TooLong(err)
		}
	}
	istiods := revisionsOf(around.Objects, f.back)
	if len(istiods) == 1 && f.Revision == "" {
		o.Revision = istiods[0] // the revision whose configuration is in force now
	}
	world := f.World
	world.ScopedGateways = world.ScopedGateways || scopeGateways(around.Objects)
	i, err := input.Read(c, world, o)
	if err != nil {
		return nil, nil, f.TooLong(err)
	}
	v := migration.Judge(i, f.Revision, istiods)
	if len(f.Files) == 0 && len(istiods) == 0 {
		v.Add("not looked at", migration.Point{Text: "no control plane runs in the cluster: its variables, arguments and values are unknown",
			Fix: "if one runs there, see that this user may list Deployments of its namespace"})
	}
	for _, o := range around.Objects {
		if c, ok := discoveryOf(o); ok {
			f.addIstiod(v, o, c, around.Objects, len(f.Files) == 0 && !slices.Contains(around.Forbidden, "secrets"))
		} else if o.GetKind() == "ConfigMap" && !f.back { // the values have them
			addTemplates(v, o, istiods)
		}
	}
	v.AddAround(around)
	v.Add(releasesSection, store.points...)
	of := ""
	if len(istiods) > 1 || f.back {
		of = f.Revision
	}
	var given []*release
	if len(f.Files) > 0 {
		var points []migration.Point
		if given, points = operatorsOf(o.Texts); f.back && given != nil {
			given, points = nil, []migration.Point{{Text: "IstioOperators are not read: they have values for Istio's charts already"}}
		}
		v.Add("IstioOperator", points...)
	}
	releases, err := store.clusterReleases(objects{around.Objects, len(f.Files) == 0}, given, f.back, of)
	return v, releases, err
}
