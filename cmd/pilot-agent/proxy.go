package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/cmd/logs"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/agent"
	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
	"github.com/istiod-lite/istiod-lite/pilot/agent/envoy"
)

// proxyFlags are the flags of Istio's command with the same names, and the flags for an Envoy outside of a pod.
type proxyFlags struct {
	config.Arguments
	logLevels   string
	logJSON     bool
	debug       string
	ineffective map[string]string // flags without effect, with the reason

	discovery, token, roots, name string // for --stock
	admin, status                 uint16
}

func proxyCommand(args, environ []string) *cobra.Command {
	f := &proxyFlags{}
	c := &cobra.Command{
		Use:   "proxy [sidecar|router]",
		Short: "Run beside an Envoy: write its bootstrap, start it, get its certificates and configuration",
		Long: `Run beside an Envoy: write its bootstrap, start it, get its certificates and configuration.

In a pod, the injection templates set the environment and mount the files. Outside of a pod, for any
Envoy:

  pilot-agent proxy --stock --name web.default --discovery localhost:15012 --roots root-cert.pem --token token

uses envoy from PATH and the working directory for its files.`,
		Example: `  pilot-agent proxy sidecar --domain default.svc.cluster.local
  pilot-agent proxy router
  pilot-agent proxy --stock --name web.default --discovery localhost:15012 --roots root-cert.pem --token token`,
		Args:               cobra.MaximumNArgs(1),
		ValidArgsFunction:  cobra.FixedCompletions([]string{"sidecar", "router"}, cobra.ShellCompDirectiveNoFileComp),
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(c *cobra.Command, positional []string) error {
			if len(positional) > 0 {
				f.Role = positional[0]
			}
			return f.run(c, args, environ)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Domain, "domain", "", "DNS domain of the node; default NAMESPACE.svc.cluster.local")
	flags.StringVar(&f.Mesh, "meshConfig", "./etc/istio/config/mesh", "file of the mesh configuration; it need not exist")
	flags.StringVar(&f.ServiceCluster, "serviceCluster", "istio-proxy", "name of Envoy's service, if its pod has no label app")
	flags.IntVar(&f.Concurrency, "concurrency", 0,
		"number of Envoy's worker threads; 0: from ProxyConfig or the CPU limit, otherwise one for each processor")
	flags.StringVar(&f.LogLevel, "proxyLogLevel", "warning",
		"Envoy's log level: trace, debug, info, warning, error, critical or off; also SCOPE:LEVEL,...")
	flags.StringVar(&f.ComponentLevel, "proxyComponentLogLevel", "", "log levels of Envoy's scopes: SCOPE:LEVEL,...")
	flags.StringVar(&f.OutlierLog, "outlierLogPath", "", "file for Envoy's outlier detection events")
	flags.StringVar(&f.logLevels, "log_output_level", "default:info", "log levels of the agent: SCOPE:LEVEL,...")
	flags.BoolVar(&f.logJSON, "log_as_json", false, "log in JSON, agent and Envoy")
	flags.StringVar(&f.debug, "debugAddr", "",
		"loopback HOST:PORT that serves the control plane's istio.io/debug pages to tools on this host; default none")
	flags.BoolVar(&f.Stock, "stock", false, "run outside of a pod, beside an Envoy from PATH")
	flags.StringVar(&f.discovery, "discovery", "", "with --stock: HOST:PORT of the control plane; port 15010 means without TLS")
	flags.StringVar(&f.name, "name", "", "with --stock: NAME.NAMESPACE of the proxy; default this host's name in namespace default")
	flags.StringVar(&f.token, "token", "", "with --stock: file with a token of the service account")
	flags.StringVar(&f.roots, "roots", "", "with --stock: PEM file with the roots that verify the control plane")
	flags.Uint16Var(&f.admin, "adminPort", 0, "with --stock: port of Envoy's admin API; default 15000")
	flags.Uint16Var(&f.status, "statusPort", 0, "with --stock: port of the agent's status; default 15020")
	f.ineffective = map[string]string{
		"stsPort": "there is no token service", "tokenManagerPlugin": "there is no token service",
		"templateFile": "the bootstrap is not made from a template",
		"profiling":    "profiles are at /debug/pprof of the status port, for this host only", "log_target": "the log goes to standard output",
		"log_caller":           "log lines have no callers",
		"log_stacktrace_level": "log lines have no stack traces", "vklog": "the agent has no Kubernetes client",
	}
	for name, why := range f.ineffective {
		flags.String(name, "", "has no effect: "+why)
		flags.Lookup(name).Hidden = true
	}
	flags.Lookup("profiling").NoOptDefVal = "true"
	return c
}

func (f *proxyFlags) run(c *cobra.Command, args, environ []string) error {
	levels := logs.NewLevels()
	if err := levels.Set(f.logLevels); err != nil {
		return fmt.Errorf("--log_output_level: %w", err)
	}
	logger, _ := logs.New(logs.Options{Writer: c.OutOrStdout(), JSON: f.logJSON, Levels: levels})
	for name, why := range f.ineffective {
		if c.Flags().Changed(name) {
			logger.Warn("flag has no effect", "flag", "--"+name, "reason", why)
		}
	}
	for _, name := range unknown(c.Flags(), args) {
		logger.Warn("unknown flag ignored", "flag", "--"+name)
	}
	for _, name := range stockFlags() {
		if !f.Stock && c.Flags().Changed(name) {
			return fmt.Errorf("--%s needs --stock: add it, or set the value in ProxyConfig", name)
		}
	}
	if f.Stock {
		var err error
		if environ, err = f.stock(environ); err != nil {
			return err
		}
	}
	f.LogJSON = f.logJSON
	addresses, err := hostAddresses()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		logger.Info("failed to get the name of this host", "err", err)
	}
	cfg, err := config.Read(config.Source{Arguments: f.Arguments, Environ: environ, Addresses: addresses, Hostname: host,
		Version: version.Tag()})
	if err != nil {
		return err
	}
	if f.Stock {
		f.setFiles(cfg)
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	kill := make(chan struct{})
	defer f.signals(logger, cancel, kill)()
	a, err := agent.New(agent.Options{
		Config: cfg, Environ: environ, LogJSON: f.logJSON, OutlierLog: f.OutlierLog, Stdout: os.Stdout, Stderr: os.Stderr, Debug: f.debug,
		Kill: kill, Log: logger,
	})
	if err != nil {
		return err
	}
	safe.Go(logger, "memory", func() { saveMemory(ctx, logger, environ) })
	logger.Info("starting the proxy", "version", version.Tag(), "id", cfg.Node.GetId(), "discovery", cfg.Security.Discovery)
	err = a.Run(ctx)
	var ended *envoy.Exit
	if errors.As(err, &ended) {
		logger.Error("Envoy exited", "state", ended.State)
		return exit{ended.Code}
	}
	return err
}

// signals ends the agent at the first signal, and kills Envoy at the second. The caller must call stop.
func (f *proxyFlags) signals(logger *slog.Logger, cancel func(), kill chan struct{}) (stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	safe.Go(logger, "signals", func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case s := <-signals:
				logger.Info("caught a signal", "signal", s.String())
				if cancel(); i == 1 {
					close(kill)
				}
			}
		}
	})
	return func() { signal.Stop(signals); close(done) }
}

// unknown returns the long flags among args that do not exist.
func unknown(flags *pflag.FlagSet, args []string) []string {
	var names []string
	for _, arg := range args {
		name, ok := strings.CutPrefix(arg, "--")
		if name, _, _ = strings.Cut(name, "="); ok && name != "" && name != "help" && flags.Lookup(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// hostAddresses returns the addresses of this host's interfaces.
func hostAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("failed to list the addresses of this host: %w", err)
	}
	var list []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, prefix.Addr())
		}
	}
	return list, nil
}

// stockFlags returns the flags that require --stock.
func stockFlags() []string {
	return []string{"discovery", "name", "token", "roots", "adminPort", "statusPort"}
}

// stock returns the environment for an Envoy outside of a pod. It adds the variables that a pod would have, unless
// they are set, and a PROXY_CONFIG that contains the flags.
func (f *proxyFlags) stock(environ []string) ([]string, error) {
	name, namespace := f.name, "default"
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		name, namespace = name[:i], name[i+1:]
	}
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("--name: %w", err)
		}
		name, _, _ = strings.Cut(host, ".")
	}
	binary, err := exec.LookPath("envoy")
	if err != nil {
		binary = "envoy" // ProxyConfig may name another; agent.New reports a missing one
	}
	fields := map[string]any{"binaryPath": binary}
	for _, v := range environ {
		if text, ok := strings.CutPrefix(v, "PROXY_CONFIG="); ok {
			if err := yamlv3.Unmarshal([]byte(text), &fields); err != nil {
				return nil, fmt.Errorf("PROXY_CONFIG: %w", err)
			}
		}
	}
	if f.discovery != "" {
		fields["discoveryAddress"] = f.discovery
	}
	for field, port := range map[string]uint16{"proxyAdminPort": f.admin, "statusPort": f.status} {
		if port != 0 {
			fields[field] = port
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("PROXY_CONFIG: %w", err)
	}
	defaults := []string{
		"POD_NAME=" + name, "POD_NAMESPACE=" + namespace, "SERVICE_ACCOUNT=" + cmp.Or(name, "default"),
		"ISTIO_META_INTERCEPTION_MODE=NONE", "ISTIO_META_CLUSTER_ID=Kubernetes", "ENVOY_SKIP_DEPRECATED_LOGS=false", "INSTANCE_IP=127.0.0.1",
	}
	return append(append(defaults, environ...), "PROXY_CONFIG="+string(text)), nil // the last value of a variable is used
}

// setFiles sets the files of the token and of the roots from the flags.
func (f *proxyFlags) setFiles(c *config.Config) {
	if f.token != "" {
		c.Security.Token = filepath.Clean(f.token)
	}
	if f.roots != "" {
		c.Security.CARoots, c.Security.DiscoveryRoots = f.roots, f.roots
	}
}
