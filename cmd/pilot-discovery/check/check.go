package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/check"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/version"
)

// flags are the flags of check.
type flags struct {
	cluster                                    input.Cluster
	address, admin, namespace, revision, proxy string
	text                                       check.TextOptions
	pre, watch                                 bool
	timeout                                    time.Duration
	env                                        *env.Env
}

// Command returns the command pilot-discovery check.
func Command(e *env.Env) *cobra.Command {
	f := &flags{env: e}
	c := &cobra.Command{
		Use:   "check [--pre | --proxy POD.NAMESPACE]",
		Short: "Check the health of the control plane or of one proxy, or whether a cluster is ready for installation",
		Long: `Check the health of the control plane: readiness, certificates, configuration, proxies and memory,
as the running server reports them, and Deployment, leaders, roots and webhooks, as the cluster has
them.

The server is the one at --address. The cluster is selected as with kubectl, or is the pod's own. If
only one of the two is reachable, only that one is checked. In the pod of the server both are.
Nothing is written.

With --pre it checks whether a control plane can be installed in the cluster; without a cluster it
fails, and checks whether its ports are free on this machine. With --proxy it checks one proxy: its connection, what
it has acknowledged and rejected, findings about the objects that apply to it, and in a cluster its
Pod; with --admin also its certificates.

A group without problems is one line (-o wide has a line for each check). The line of a problem
names the command that fixes it or shows more. The exit code is 0 if there is no problem, 79 if
there is one, and 1 if the command fails.`,
		Example: `  pilot-discovery check
  pilot-discovery check --pre
  pilot-discovery check --proxy productpage-v1.bookinfo --short
  pilot-discovery check -o json
  kubectl exec -n istio-system deploy/istiod -- pilot-discovery check`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	cli.AddressFlag(c, &f.address)
	f.cluster.Register(flags, e, "", "")
	flags.StringVarP(&f.namespace, "istioNamespace", "i", e.Text("POD_NAMESPACE", "istio-system"), "namespace of the control plane")
	flags.StringVar(&f.revision, "revision", e.Text("REVISION", ""), "revision of the control plane")
	flags.BoolVar(&f.pre, "pre", false, "check whether a control plane can be installed")
	flags.StringVar(&f.proxy, "proxy", "", "check one proxy: POD.NAMESPACE")
	flags.StringVar(&f.admin, "admin", "", "with --proxy, HOST:PORT of its Envoy's admin API, such as 127.0.0.1:15000 after kubectl "+
		"port-forward")
	flags.BoolVar(&f.text.Short, "short", false, "print only problems")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "time limit for all checks")
	cli.OutputFlag(c, &f.text.Format, check.Formats()...)
	cli.WatchFlag(c, &f.watch)
	cli.CompleteWith(c, "proxy", func(c *cobra.Command, _ []string) []string {
		if list := cli.Connected(c, f.address); len(list) > 0 {
			return list
		}
		return f.cluster.Names(c, "pods")
	})
	f.cluster.Complete(c)
	c.MarkFlagsMutuallyExclusive("pre", "proxy")
	return c
}

func (f *flags) run(c *cobra.Command) error {
	for name, err := range map[string]error{"istioNamespace": cli.CheckNamespace(f.namespace), "revision": cli.CheckRevision(f.revision)} {
		if err != nil {
			return fmt.Errorf("--%s=%s: %w", name, cli.Quoted(c.Flags().Lookup(name).Value.String()), err)
		}
	}
	if f.admin != "" && f.proxy == "" {
		return errors.New("--admin: name the proxy by --proxy, too")
	}
	var err error
	if f.text.Color, err = cli.Colors(c, f.env.Getenv); err != nil {
		return err
	}
	return cli.Watched(c, f.watch, func(w io.Writer) error { return f.once(c, w) })
}

// once runs the checks once.
func (f *flags) once(c *cobra.Command, w io.Writer) error {
	ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
	defer cancel()
	p := cli.NewProgress(c.ErrOrStderr(), "checking")
	report := &check.Report{}
	var err error
	switch {
	case f.pre:
		err = f.before(ctx, report)
	case f.proxy != "":
		err = f.oneProxy(ctx, report)
	default:
		err = f.whole(ctx, c, report)
	}
	p.Done()
	if err != nil {
		return err
	}
	if err := report.Write(w, f.text); err != nil {
		return err
	}
	if report.Wrong() {
		return cli.Exit(cli.Found)
	}
	return nil
}

// reach returns the cluster, or nil if there is none and the flags name none.
func (f *flags) reach() (*check.Cluster, error) {
	client, err := f.cluster.Client()
	if errors.Is(err, input.ErrNoKubeconfig) && !f.cluster.Named() {
		return nil, nil //nolint:nilnil // nil means that there is no cluster
	}
	if err != nil {
		return nil, err
	}
	config, err := f.cluster.Config(client)
	if err != nil {
		return nil, err
	}
	return check.NewCluster(config, f.namespace, f.revision, time.Now())
}

func (f *flags) server() check.Server {
	return check.Server{Get: cli.Getter(f.address), Address: f.address, Version: version.Tag(), Now: time.Now()}
}

// whole checks the server and the cluster if they exist. At least one must exist, and so must each that the flags name.
func (f *flags) whole(ctx context.Context, c *cobra.Command, report *check.Report) error {
	cluster, err := f.reach()
	if err != nil {
		return err
	}
	noServer := report.Running(ctx, f.server())
	if noServer != nil && (cluster == nil || c.Flags().Changed("address")) {
		return noServer
	}
	if noServer != nil {
		fmt.Fprintf(c.ErrOrStderr(), "no server answers at %s, so only the cluster is checked: kubectl exec -n %s deploy/istiod "+
			"-- pilot-discovery check asks both\n", f.address, f.namespace)
	}
	if cluster == nil {
		return nil
	}
	if err := report.Installed(ctx, cluster); err != nil && (noServer != nil || f.cluster.Named()) {
		return err
	} else if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "only the server is checked, not the cluster: %v\n", err)
	}
	return nil
}

func (f *flags) before(ctx context.Context, report *check.Report) error {
	cluster, err := f.reach()
	if err != nil {
		return err
	}
	if cluster != nil {
		return report.Installable(ctx, cluster)
	}
	report.NoCluster()
	report.LocalPorts(ctx, map[string]string{
		"grpcAddr": ":15010", "secureGRPCAddr": ":15012", "httpAddr": ":8080", "httpsAddr": ":15017", "monitoringAddr": ":15014",
	})
	return nil
}

func (f *flags) oneProxy(ctx context.Context, report *check.Report) error {
	name, namespace, err := cli.SplitName(f.proxy)
	if err != nil {
		return fmt.Errorf("--proxy=%s: %w", cli.Quoted(f.proxy), err)
	}
	if err := report.ProxyOf(ctx, f.server(), f.proxy); err != nil {
		return err
	}
	if f.admin != "" {
		if err := report.Envoy(ctx, cli.Getter(f.admin), time.Now()); err != nil {
			return err
		}
	}
	cluster, err := f.reach()
	if err != nil || cluster == nil {
		return err
	}
	if err := report.Pod(ctx, cluster, name, namespace); err != nil && f.cluster.Named() {
		return err
	}
	return nil
}
