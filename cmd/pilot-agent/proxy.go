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

// proxyFlags are those of Istio's command, by the same names, and those of an Envoy of the user's own.
type proxyFlags struct {
	config.Arguments
	logLevels string
	logJSON   bool
	debug     string
	unused    map[string]string // flags that do nothing here, and why

	discovery, token, roots, name string // with --stock
	admin, status                 uint16
}

func proxyCommand(args, environ []string) *cobra.Command {
	f := &proxyFlags{}
	c := &cobra.Command{
		Use:   "proxy [sidecar|router]",
		Short: "Run beside an Envoy: write its bootstrap, start it, get its certificates and configuration",
		Long: `Run beside an Envoy: write its bootstrap, start it, get its certificates and configuration.

In a pod, the environment and the files of the injection templates say the rest. Beside any Envoy that you have:

  pilot-agent proxy --stock --name web.default --discovery localhost:15012 --roots root-cert.pem --token token

takes envoy from PATH, and keeps its files in the working directory.`,
		Example: `  pilot-agent proxy sidecar --domain default.svc.cluster.local
  pilot-agent proxy router
  pilot-agent proxy --stock --name web.default --discovery localhost:15012 --roots root-cert.pem --token token`,
		Args:               cobra.MaximumNArgs(1),
		ValidArgsFunction:  cobra.FixedCompletions([]string{"sidecar", "router"}, cobra.ShellCompDirectiveNoFileComp),
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(c *cobra.Command, position []string) error {
			if len(position) > 0 {
				f.Role = position[0]
			}
			return f.run(c, args, environ)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Domain, "domain", "", "DNS domain of the node; NAMESPACE.svc.cluster.local if it is empty")
	flags.StringVar(&f.Mesh, "meshConfig", "./etc/istio/config/mesh", "file of the mesh's configuration, which may be missing")
	flags.StringVar(&f.ServiceCluster, "serviceCluster", "istio-proxy", "what Envoy calls itself, where its pod has no label app")
	flags.IntVar(&f.Concurrency, "concurrency", 0, "worker threads of Envoy; 0: as ProxyConfig or the CPU limit says, else one for each processor")
	flags.StringVar(&f.LogLevel, "proxyLogLevel", "warning", "Envoy's level: trace, debug, info, warning, error, critical or off; also SCOPE:LEVEL,...")
	flags.StringVar(&f.ComponentLevel, "proxyComponentLogLevel", "", "Envoy's levels of scopes: SCOPE:LEVEL,...")
	flags.StringVar(&f.OutlierLog, "outlierLogPath", "", "file to which Envoy writes the events of outlier detection")
	flags.StringVar(&f.logLevels, "log_output_level", "default:info", "levels of the agent's own log: SCOPE:LEVEL,...")
	flags.BoolVar(&f.logJSON, "log_as_json", false, "log in JSON, Envoy too")
	flags.StringVar(&f.debug, "debugAddr", "", "HOST:PORT on which tools of this host may ask for istio.io/debug pages of the control plane; empty: none may")
	flags.BoolVar(&f.Stock, "stock", false, "run beside an Envoy of your own, outside of a pod")
	flags.StringVar(&f.discovery, "discovery", "", "with --stock: HOST:PORT of the control plane; :15010 is plaintext")
	flags.StringVar(&f.name, "name", "", "with --stock: NAME.NAMESPACE of the proxy; this host's name in default if it is empty")
	flags.StringVar(&f.token, "token", "", "with --stock: file of a token of the service account")
	flags.StringVar(&f.roots, "roots", "", "with --stock: PEM file of the CA by which the control plane is trusted")
	flags.Uint16Var(&f.admin, "adminPort", 0, "with --stock: port of Envoy's admin API, if not 15000")
	flags.Uint16Var(&f.status, "statusPort", 0, "with --stock: port of the agent's status, if not 15020")
	f.unused = map[string]string{
		"stsPort": "there is no token service", "tokenManagerPlugin": "there is no token service", "templateFile": "the bootstrap is not made from a template",
		"profiling": "profiles are at /debug/pprof of the status port, for this host only", "log_target": "the log goes to standard output", "log_caller": "lines name no callers",
		"log_stacktrace_level": "lines have no stack traces", "vklog": "the agent has no client of Kubernetes",
	}
	for name, why := range f.unused {
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
	for name, why := range f.unused {
		if c.Flags().Changed(name) {
			logger.Warn("flag has no effect", "flag", "--"+name, "reason", why)
		}
	}
	for _, name := range unknown(c.Flags(), args) {
		logger.Warn("unknown flag ignored", "flag", "--"+name)
	}
	for _, name := range stockFlags() {
		if !f.Stock && c.Flags().Changed(name) {
			return fmt.Errorf("--%s is for an Envoy of your own: write --stock too, or set ProxyConfig", name)
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
		logger.Info("this host has no name", "err", err)
	}
	cfg, err := config.Read(config.Source{Arguments: f.Arguments, Environ: environ, Addresses: addresses, Hostname: host, Version: version.Tag()})
	if err != nil {
		return err
	}
	if f.Stock {
		f.files(cfg)
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	kill := make(chan struct{})
	defer f.signals(logger, cancel, kill)()
	a, err := agent.New(agent.Options{
		Config: cfg, Environ: environ, LogJSON: f.logJSON, OutlierLog: f.OutlierLog, Stdout: os.Stdout, Stderr: os.Stderr, Debug: f.debug, Kill: kill, Log: logger,
	})
	if err != nil {
		return err
	}
	safe.Go(logger, "memory", func() { saveMemory(ctx, logger, environ) })
	logger.Info("proxy", "version", version.Tag(), "id", cfg.Node.GetId(), "discovery", cfg.Security.Discovery)
	err = a.Run(ctx)
	var ended *envoy.Exit
	if errors.As(err, &ended) {
		logger.Error("Envoy ended by itself", "state", ended.State)
		return exit{ended.Code}
	}
	return err
}

// signals ends the agent at the first signal, and Envoy at once at the second.
func (f *proxyFlags) signals(logger *slog.Logger, end func(), kill chan struct{}) (stop func()) {
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	safe.Go(logger, "signals", func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case s := <-caught:
				logger.Info("caught a signal", "signal", s.String())
				if end(); i == 1 {
					close(kill)
				}
			}
		}
	})
	return func() { signal.Stop(caught); close(done) }
}

// unknown returns the flags among args that do not exist.
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
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	var list []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, prefix.Addr())
		}
	}
	return list, nil
}

// stockFlags are those that count with --stock alone.
func stockFlags() []string {
	return []string{"discovery", "name", "token", "roots", "adminPort", "statusPort"}
}

// stock returns the environment of an Envoy outside of a pod: what a pod's would say, where it is not set.
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
		binary = "envoy" // ProxyConfig may name another; what is wrong is said later
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
	return append(append(defaults, environ...), "PROXY_CONFIG="+string(text)), nil // the last of a name counts
}

// files takes tokens and roots from where the user says.
func (f *proxyFlags) files(c *config.Config) {
	if f.token != "" {
		c.Security.Token = filepath.Clean(f.token)
	}
	if f.roots != "" {
		c.Security.CARoots, c.Security.DiscoveryRoots = f.roots, f.roots
	}
}
