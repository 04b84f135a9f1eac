package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// Flags are the flags of validate and analyze. They have the names of istioctl analyze's and kubectl's flags.
type Flags struct {
	input.World
	advice    bool // set by analyze only
	Files     []string
	Output    string
	failure   string
	show      string
	suppress  []string
	UseKube   bool
	Cluster   input.Cluster
	Namespace string
	all       bool
	Revision  string
	Timeout   time.Duration
	list      bool
	pageSize  int64
	Elsewhere string // what an error names instead of a kubeconfig; empty for files
	Env       *env.Env
	Color     cli.Painter
}

const judgeFormats = `
Formats (-o): log has one line for each finding, table has aligned columns, json and yaml are for
programs, sarif is SARIF 2.1.0, and github writes annotations for GitHub workflows.

The exit code is 0 if no finding reaches --failure-threshold, 79 if one does, as with istioctl
analyze, and 1 if the command fails.`

// ValidateCommand returns the command pilot-discovery validate.
func ValidateCommand(e *env.Env) *cobra.Command {
	f := &Flags{}
	c := &cobra.Command{
		Use:   "validate [-f] PATH...",
		Short: "Report errors in configuration, and fail if there are any",
		Long: `Report errors in configuration, and fail if there are any. The configuration is in files, in
directories, on the standard input ("-"), or in a cluster.

References between objects are checked within the given configuration, so include the Services to
which routes lead. The command analyze checks files together with the objects of a cluster, and also
gives advice.
` + judgeFormats,
		Example: `  pilot-discovery validate mesh
  pilot-discovery validate -f services.yaml -f routes.yaml -o sarif >findings.sarif
  kubectl get virtualservice,destinationrule,service -A -o yaml | pilot-discovery validate -
  pilot-discovery validate --use-kube -A`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c, e, false)
	return c
}

// Command returns the command pilot-discovery analyze.
func Command(e *env.Env) *cobra.Command {
	f := &Flags{advice: true}
	c := &cobra.Command{
		Use:   "analyze [PATH...]",
		Short: "Report errors and likely mistakes in a cluster, or in files to be applied to it",
		Long: `Report errors and likely mistakes in the configuration of a cluster. Objects in files, in
directories and on the standard input ("-") replace those of the cluster, so the findings are the
ones after applying them.

The cluster is selected as with kubectl, and only read. Only Secrets that objects name are read. A
finding names the objects that you may not read.

The annotation galley.istio.io/analyze-suppress of an object lists codes, separated by commas, that
are not reported for it, or * for all. Findings because of which an object is ignored are reported
nevertheless.
` + judgeFormats,
		Example: `  pilot-discovery analyze
  pilot-discovery analyze -A -o table
  pilot-discovery analyze route.yaml -n shop
  pilot-discovery analyze mesh --use-kube=false --failure-threshold Warning`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c, e, true)
	return c
}

func (f *Flags) register(c *cobra.Command, e *env.Env, useKube bool) {
	flags := c.Flags()
	f.Env = e
	f.RegisterMesh(flags, e, "istioNamespace", "i")
	flags.StringArrayVarP(&f.Files, "filename", "f", nil, "file or directory, or - for the standard input; may be repeated")
	cli.OutputFlag(c, &f.Output, report.Formats()...)
	for _, name := range []string{"failure-threshold", "output-threshold"} {
		defer cli.CompleteFlag(c, name, "Info", "Warning", "Error")
	}
	flags.StringVar(&f.failure, "failure-threshold", "Error",
		"lowest severity of findings with which the command fails: Info, Warning or Error")
	flags.StringVar(&f.show, "output-threshold", "Info", "lowest severity of printed findings: Info, Warning or Error")
	flags.StringArrayVarP(&f.suppress, "suppress", "S", nil,
		"leave findings out: CODE=OBJECT, such as \"IST0102=Namespace default\", with * for any text; may be repeated")
	flags.BoolVarP(&f.UseKube, "use-kube", "k", useKube, "also read the cluster")
	f.Cluster.Register(flags, e, "c", "; implies --use-kube")
	flags.StringVarP(&f.Namespace, "namespace", "n", "",
		"namespace to report, and namespace of objects in files that name none; the kubeconfig's by default")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "report the objects of all namespaces; implies --use-kube")
	flags.StringVar(&f.Revision, "revision", e.Text("REVISION", ""),
		"revision of the control plane: objects with the label istio.io/rev of another revision are ignored")
	flags.DurationVar(&f.Timeout, "timeout", 30*time.Second, "time limit for reading the cluster")
	flags.BoolVarP(&f.list, "list-analyzers", "L", false, "print the list of analyzers and exit")
	flags.Int64Var(&f.pageSize, "page-size", 500, "objects that are asked for at once")
	f.completeCluster(c)
}

// RegisterCluster registers the flags of commands that read a cluster once.
func (f *Flags) RegisterCluster(c *cobra.Command, e *env.Env) {
	flags := c.Flags()
	f.Env = e
	f.Cluster.Register(flags, e, "c", "")
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "namespace of objects in files that name none; the kubeconfig's by default")
	flags.StringVar(&f.Revision, "revision", e.Text("REVISION", ""),
		"revision of the control plane: objects with the label istio.io/rev of another revision are ignored")
	flags.DurationVar(&f.Timeout, "timeout", 30*time.Second, "time limit for reading the cluster")
	flags.Int64Var(&f.pageSize, "page-size", 500, "objects that are asked for at once")
	f.completeCluster(c)
}

// completeCluster adds completions to the flags that name something in a cluster.
func (f *Flags) completeCluster(c *cobra.Command) {
	f.Cluster.Complete(c)
	cli.CompleteWith(c, "namespace", func(c *cobra.Command, _ []string) []string { return f.Cluster.Names(c, "namespaces") })
}

func (f *Flags) run(c *cobra.Command, args []string) error {
	if f.list {
		return listAnalyzers(c)
	}
	failure, err := report.ParseSeverity(f.failure)
	if err != nil {
		return fmt.Errorf("--failure-threshold: %w", err)
	}
	show, err := report.ParseSeverity(f.show)
	if err != nil {
		return fmt.Errorf("--output-threshold: %w", err)
	}
	suppressed, err := suppressions(f.suppress)
	if err != nil {
		return err
	}
	if f.Namespace != "" {
		if err := cli.CheckNamespace(f.Namespace); err != nil {
			return fmt.Errorf("--namespace=%s: %w", cli.Quoted(f.Namespace), err)
		}
	}
	if f.pageSize < 1 {
		return fmt.Errorf("--page-size=%d: write a number of objects, for example 500", f.pageSize)
	}
	o := ingest.Options{Advice: f.advice, Revision: f.Revision, Limits: limits.Default()}
	if err := f.World.Options(&o); err != nil {
		return err
	}
	paths := slices.Concat(args, f.Files)
	if err := f.ReadCluster(c, &o, len(paths) > 0); err != nil {
		return err
	}
	if len(paths) > 0 || o.Cluster == nil {
		if len(paths) == 0 {
			return fmt.Errorf("nothing to %s: name files or directories, or - for the standard input, or a cluster by --kubeconfig", c.Name())
		}
		if o.Texts, err = file.Read(paths, c.InOrStdin(), limits.Default()); err != nil {
			return err
		}
		o.Texts.Namespace = f.Namespace
	}
	if o.Cluster != nil {
		o.Concerns = func(o *kinds.Object) bool { return f.inScope(o.Position != "", o.Kind.Name, o.Namespace, o.Name) }
	}
	i, err := input.Read(c, f.World, o)
	if o.Cluster != nil {
		err = f.TooLong(err)
	}
	if err != nil {
		return err
	}
	color, err := cli.Colors(c, f.Env.Getenv)
	if err != nil {
		return err
	}
	r := report.Report{Color: color, Objects: i.Objects, Version: version.Tag(),
		Findings: slices.DeleteFunc(i.Findings, func(d diag.Diagnostic) bool {
			return o.Cluster != nil && !f.concerns(d) || slices.ContainsFunc(suppressed, func(s suppression) bool { return s.matches(d) })
		})}
	if i.Refusal != nil {
		r.Refusal = i.Refusal.Error()
	}
	if err := r.From(show).Write(c.OutOrStdout(), f.Output); err != nil {
		return err
	}
	if r.Reaches(failure) {
		return cli.Exit(cli.Found)
	}
	if i.Objects == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "no objects: of what was given nothing is YAML with an object of a kind that is known")
	}
	return nil
}

// ReadCluster reads the cluster into the options if the flags ask for one.
func (f *Flags) ReadCluster(c *cobra.Command, o *ingest.Options, files bool) error {
	named := f.Cluster.Named() || f.all
	if !f.UseKube && (!named || c.Flags().Changed("use-kube")) {
		return nil
	}
	client, err := f.Cluster.Client()
	switch {
	case err == nil:
	case files && !named && !c.Flags().Changed("use-kube"):
		fmt.Fprintln(c.ErrOrStderr(), "no kubeconfig: the files are judged by themselves, as with --use-kube=false")
		return nil
	default:
		return fmt.Errorf("%w, or %s", err, cmp.Or(f.Elsewhere, "files and --use-kube=false"))
	}
	config, err := f.Cluster.Config(client)
	if err != nil {
		return err
	}
	if f.Namespace == "" && !f.all {
		f.Namespace = crd.Namespace(client)
	}
	ctx, cancel := context.WithTimeout(c.Context(), f.Timeout)
	defer cancel()
	p := cli.NewProgress(c.ErrOrStderr(), "reading the cluster")
	defer p.Done()
	list := crd.ListOptions{Client: config, Namespace: f.Namespace, Page: f.pageSize, Limits: o.Limits, Progress: p.Show}
	list.Kinds, list.Only = o.ListedKinds()
	o.Cluster, err = crd.List(ctx, list)
	err = f.TooLong(err)
	if err != nil && files && !named {
		err = fmt.Errorf("%w (--use-kube=false checks the files alone)", err)
	}
	return err
}

// concerns reports whether a finding is within the scope of the command: it is about a file, about an object in the
// chosen namespace, or about an object without a namespace.
func (f *Flags) concerns(d diag.Diagnostic) bool {
	kind, name, _ := strings.Cut(d.Object, " ")
	ns, short, namespaced := strings.Cut(name, "/")
	if !namespaced {
		ns, short = "", name
	}
	return f.inScope(d.File != "", kind, ns, short)
}

// inScope reports whether an object is within the scope of the command. namespace is empty for an object without one.
func (f *Flags) inScope(file bool, kind, namespace, name string) bool {
	if kind == "Namespace" {
		namespace = name
	}
	return f.all || file || namespace == "" || namespace == f.Namespace
}

// TooLong adds the flag that sets the time limit to an error if reading exceeded that limit.
func (f *Flags) TooLong(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: it took longer than --timeout=%s", err, f.Timeout)
	}
	return err
}

// suppression selects findings to leave out.
type suppression struct{ code, object string }

func suppressions(list []string) ([]suppression, error) {
	var out []suppression
	for _, text := range list {
		code, object, ok := strings.Cut(text, "=")
		if _, err := filepath.Match(object, ""); !ok || code == "" || object == "" || err != nil {
			return nil, fmt.Errorf("--suppress=%s: write CODE=OBJECT, for example \"IST0102=Namespace default\" or "+
				"\"IST0101=VirtualService shop/*\"", cli.Quoted(text))
		}
		// istioctl's form is NAME.NAMESPACE. Names may contain dots, namespaces do not.
		if kind, name, found := strings.Cut(object, " "); found && !strings.Contains(name, "/") {
			if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
				object = kind + " " + name[dot+1:] + "/" + name[:dot]
			}
		}
		out = append(out, suppression{code, object})
	}
	return out, nil
}

func (s suppression) matches(d diag.Diagnostic) bool {
	object := strings.ReplaceAll(d.Object, "/", "\n") // a star matches any text
	matched, err := filepath.Match(strings.ReplaceAll(s.object, "/", "\n"), object)
	return err == nil && matched && (s.code == "*" || s.code == d.Code || s.code == analysis.Describe(d.Code).ID)
}

// listAnalyzers prints the list of all findings.
func listAnalyzers(c *cobra.Command) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tCODES\tONLY ANALYZE\tWHAT IT REPORTS")
	for _, a := range analysis.Analyzers() {
		advice := "-"
		if a.Advice {
			advice = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", a.Name, strings.Join(a.Codes, ","), advice, a.Reports)
	}
	return t.Flush()
}
