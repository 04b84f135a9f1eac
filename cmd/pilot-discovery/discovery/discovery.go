package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/logs"
	"github.com/istiod-lite/istiod-lite/cmd/pages"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/bootstrap"
)

// flags have the names of the flags of istiod's command. Some configure parts that this server does not have. They are
// accepted, so that charts and scripts need no change, and their help text says so.
type flags struct {
	input.World
	kube         kubeFlags
	keySets      keySetVariables
	o            bootstrap.Options
	logLevels    string
	logStacks    string
	logCallers   string
	ctrlzAddress string
	ctrlzPort    uint16
	apiClients   string
	gateways     string // value of TRUSTED_GATEWAY_CIDR
	nodeAccounts string // value of CA_TRUSTED_NODE_ACCOUNTS
	minTLS       string
	external     string // value of EXTERNAL_CA
	provider     string // value of PILOT_CERT_PROVIDER
	logJSON      bool
	unused       []string
}

// Command returns the command pilot-discovery discovery.
func Command(e *env.Env, args []string) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "discovery",
		Short: "Serve configuration to proxies",
		Example: `  pilot-discovery discovery --configDir mesh
  pilot-discovery discovery --configDir mesh --stateDir state --monitoringAddr 127.0.0.1:15014
  pilot-discovery discovery --kubeconfig ~/.kube/config`,
		Args:               cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	f.register(c.Flags(), e)
	c.Long = `Serve configuration to proxies, from an API server, from a directory of YAML, or from both; issue
certificates, validate objects and inject proxies.

These environment variables set defaults of flags, or disable features:
` + env.Describe(e.Read) + `
GOGC, GOMEMLIMIT and GOMAXPROCS are Go's own.`
	c.RunE = func(c *cobra.Command, rest []string) error {
		if err := e.Refusal(); err != nil {
			return err
		}
		paceCollector(e)
		levels := logs.NewLevels()
		if err := levels.Set(f.logLevels); err != nil {
			return err
		}
		if err := levels.SetStack(f.logStacks); err != nil {
			return err
		}
		levels.SetCallers(f.logCallers)
		logger, log := logs.New(logs.Options{Writer: c.ErrOrStderr(), JSON: f.logJSON, Levels: levels})
		klog.SetSlogLogger(logger.With("scope", "kube")) // client-go has one global logger
		if err := f.warn(logger, c.Flags(), args, rest); err != nil {
			return err
		}
		for _, v := range e.Foreign() {
			logger.Warn("this variable has no effect here", "variable", v.Name, "reason", v.Why)
		}
		if err := discoveryChecks().Run(c.Flags()); err != nil {
			return err
		}
		if err := input.CheckMeshFiles(c.Flags()); err != nil {
			return err
		}
		if err := f.Options(&f.o.Options); err != nil {
			return err
		}
		if lack, fix := f.o.Compliance.Warning(); lack != "" {
			logger.Warn("the policy of TLS is narrower here", "policy", f.o.Compliance, "reason", lack, "fix", fix)
		}
		if f.WithoutHTTP3() {
			logger.Warn("gateways serve no HTTP/3: Envoy does not apply the policy of TLS to QUIC", "policy", f.o.Compliance)
		}
		if err := checkController(f.o.GatewayController); err != nil {
			return err
		}
		if err := f.checkNames(); err != nil {
			return err
		}
		if f.o.AnyTrustDomain {
			logger.Warn("workloads accept peers of any trust domain: PILOT_SKIP_VALIDATE_TRUST_DOMAIN is true")
		}
		f.o.DebounceAfter = max(f.o.DebounceAfter, 1) // 0 means no wait, and not the default
		if err := f.kube.options(&f.o.Options); err != nil {
			return err
		}
		if err := f.kube.secretsClient(&f.o.Options, f.o.External); err != nil {
			return err
		}
		for _, v := range f.idle() {
			logger.Warn("this variable has no effect here", "variable", v.variable, "reason", v.reason)
		}
		if slices.Contains(f.o.Ignored, kinds.GatewayClass) {
			f.o.Gateways.NoClasses = true
		}
		if err := f.certificates(&f.o.Certificates); err != nil {
			return err
		}
		if err := f.keySets.options(&f.o.KeySets); err != nil {
			return err
		}
		if err := cli.CheckNativeSidecars(f.o.Injection.NativeSidecars); err != nil {
			return err
		}
		f.o.Injection.Functions.Env = e.Getenv
		if f.o.StatusRate < 1 {
			return fmt.Errorf("PILOT_STATUS_QPS=%d: write a number of objects a second, for example 20", f.o.StatusRate)
		}
		f.o.APIClients = []netip.Prefix{}
		for _, text := range cli.Fields(f.apiClients) {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("--apiClients=%s: write CIDRs separated by commas, for example 10.0.0.0/8,::1/128, or nothing: %w", f.apiClients, err)
			}
			f.o.APIClients = append(f.o.APIClients, prefix)
		}
		if limit := limitMemory(os.DirFS("/"), e.Getenv); limit > 0 {
			logger.Info("set memory limit to nine tenths of the cgroup's", "bytes", limit)
		}
		f.o.Logger, f.o.Panics, f.o.Version, f.o.Process = logger, log, version.Tag(), process()
		f.o.ControlZ = bootstrap.ControlZ{Scopes: scopes{levels}, Args: append([]string{c.Root().Name()}, args...), Environ: e.Environ}
		if f.ctrlzAddress != "" {
			f.o.ControlZ.Address = net.JoinHostPort(f.ctrlzAddress, strconv.Itoa(int(f.ctrlzPort)))
			f.o.ControlZ.Required = c.Flags().Changed("ctrlz_port") || c.Flags().Changed("ctrlz_address")
		}
		f.o.Ready = func() {
			time.AfterFunc(time.Second, func() { // so that the first proxies, too, find everything that they need
				if err := pages.Release(); err != nil {
					logger.Info("failed to release unused pages", "err", err)
				}
			})
		}
		spans, flush, err := tracer(c.Context(), e, logger)
		if err != nil {
			return err
		}
		if spans != nil {
			f.o.Tracer = spans
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), flushTime)
				defer cancel()
				if err := flush(ctx); err != nil {
					logger.Info("failed to send the last traces", "err", err)
				}
			}()
		}
		server, err := bootstrap.New(f.o)
		if err != nil {
			return err
		}
		signaled, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		ctx, cancel := context.WithCancel(context.WithoutCancel(signaled))
		defer cancel()
		// The default signal handling is restored before the server is stopped, so that the second signal ends the
		// process at once.
		defer context.AfterFunc(signaled, func() { stop(); cancel() })()
		return server.Run(ctx)
	}
	return c
}

// process returns a name that identifies this process among all writers to the same API server.
func process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// warn logs the given flags and variables that have no effect. It returns an error for an unknown flag whose name is
// similar to a known one.
func (f *flags) warn(logger *slog.Logger, flags *pflag.FlagSet, args, rest []string) error {
	var known []string
	flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	for _, name := range UnknownFlags(flags, args) {
		if near := diag.Nearest(name, known); near != "" {
			return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, near)
		}
		logger.Warn("unknown flag ignored", "flag", "--"+name)
	}
	for _, name := range f.unused {
		if flags.Changed(name) {
			logger.Warn("this flag has no effect here", "flag", "--"+name)
		}
	}
	if len(rest) > 0 {
		logger.Warn("arguments ignored", "args", strings.Join(rest, " "))
	}
	return nil
}

func (f *flags) register(flags *pflag.FlagSet, e *env.Env) {
	o := &f.o
	o.Limits = limits.Default()
	f.World.Register(flags, e)
	f.kube.register(flags, e)
	f.registerCertificates(flags, e)
	f.keySets.read(e)
	f.o.Injection.Off = !e.Enabled("INJECT_ENABLED")
	f.o.Injection.NativeSidecars = e.Text("ENABLE_NATIVE_SIDECARS", "auto")
	flags.StringVar(&f.o.Injection.Dir, "injectDir", "./var/lib/istio/inject",
		"directory with the injection templates in the files config and values; without them the ConfigMap istio-sidecar-injector of "+
			"the root namespace")

	flags.StringVar(&o.GRPC, "grpcAddr", ":15010", "plaintext ADS; empty serves it on --httpAddr")
	flags.StringVar(&o.SecureGRPC, "secureGRPCAddr", ":15012", "ADS and certificates over TLS; listens if there is a certificate authority")
	flags.StringVar(&o.HTTP, "httpAddr", ":8080", "readiness and debug")
	flags.StringVar(&o.HTTPS, "httpsAddr", ":15017", "webhooks; listens once there is a certificate; empty serves them on --httpAddr")
	flags.StringVar(&o.Monitoring, "monitoringAddr", ":15014", "metrics, version and debug")
	flags.StringVar(&o.AddressFile, "addressFile", "", "file to write the bound addresses to, as JSON, once the server is ready")

	flags.StringVar(&f.apiClients, "apiClients", "127.0.0.0/8,::1/128",
		"CIDRs of the clients that may read configuration objects over xDS (MCP); empty for none")

	flags.StringToStringVar(&o.ClusterAliases, "clusterAliases", nil,
		"aliases that proxies may use for cluster IDs: alias=id, separated by commas")

	flags.BoolVar(&o.Relay, "relayConfig", false, "also serve over MCP what was received over MCP, for chains of control planes; not "+
		"for control planes that read each other")

	flags.StringVar(&o.PodName, "podName", e.Text("POD_NAME", ""),
		"name of this server's pod; without it the server is not taken for a pod of its cluster, and has no certificate authority in a Secret")

	flags.BoolVar(&o.RegisterAnyone, "registerUnauthenticated", false,
		"let workloads on other hosts register without authentication: any client that reaches the port can impersonate any of them")
	o.TraceSampling = e.Percent("PILOT_TRACE_SAMPLING")
	o.NoRegistration = !e.Permitted("PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION")
	o.NoHealth = !e.Enabled("PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS")
	o.RegistrationGrace = e.Duration("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", 10*time.Second)
	o.NoVirtualHosts = !e.Enabled("PILOT_ENABLE_VHDS")
	o.Webhooks.NoValidation = e.Cleared("VALIDATION_WEBHOOK_CONFIG_NAME")
	o.Webhooks.NoInjection = e.Cleared("INJECTION_WEBHOOK_CONFIG_NAME")
	o.NoElection = !e.Enabled("ENABLE_LEADER_ELECTION")
	o.External = e.Asked("EXTERNAL_ISTIOD")
	gateways := e.Permitted("PILOT_ENABLE_GATEWAY_API")
	o.Gateways.NoDeployment = !e.Permitted("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER") || !gateways
	o.Gateways.NoClasses = !e.Enabled("PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER") || !gateways
	o.AnyTrustDomain = e.Asked("PILOT_SKIP_VALIDATE_TRUST_DOMAIN")
	o.Untaint.On = e.Asked("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS")
	o.Untaint.Taint = e.Text("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", names.TaintNotReady)
	flags.StringVar(&o.Untaint.Namespace, "cniNamespace", "",
		"namespace of the CNI plugin's pods, for PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS; the default is --namespace")
	o.Advice = e.Asked("PILOT_ENABLE_ANALYSIS")
	o.Conditions = e.Asked("PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS")
	o.StatusRate = e.Number("PILOT_STATUS_QPS", 20)

	flags.DurationVar(&o.KeepaliveInterval, "keepaliveInterval", 30*time.Second, "idle time after which a client is pinged")
	flags.DurationVar(&o.KeepaliveTimeout, "keepaliveTimeout", 10*time.Second, "time limit for the answer to a ping")
	flags.DurationVar(&o.MaxConnectionAge, "keepaliveMaxServerConnectionAge", 0,
		"age at which connections are closed, give or take a tenth; 0 for never")
	flags.DurationVar(&o.Drain, "drainDuration", 0,
		"when the server stops: time between failing its readiness probe and refusing connections; the chart sets 5s")
	flags.DurationVar(&o.Shutdown, "shutdownDuration", 10*time.Second, "when the server stops: time limit for streams to end after that")
	flags.DurationVar(&o.DebounceAfter, "debounceAfter", e.Duration("PILOT_DEBOUNCE_AFTER", 100*time.Millisecond),
		"minimum time between two pushes for one namespace")
	flags.DurationVar(&o.DebounceMax, "debounceMax", e.Duration("PILOT_DEBOUNCE_MAX", 10*time.Second),
		"maximum time that a change waits for its push")
	flags.IntVar(&o.Limits.RecvMessage, "maxRecvMessageSize", e.Number("ISTIO_GPRC_MAXRECVMSGSIZE", o.Limits.RecvMessage),
		"size limit of a message from a client, in bytes")
	flags.IntVar(&o.Limits.Streams, "maxStreams", e.Number("PILOT_MAX_STREAMS", o.Limits.Streams),
		"streams of proxies that are served at a time, more wait; the proxies of one service account get a tenth of them")
	o.NoMemo = !e.Enabled("PILOT_ENABLE_XDS_CACHE")
	flags.BoolVar(&o.Profile, "profile", true, "serve /debug/pprof to loopback peers")

	flags.StringVar(&f.logLevels, "log_output_level", "default:info",
		"log level, or scope:level, separated by commas: none, fatal, error, warn, info, debug")
	flags.BoolVar(&f.logJSON, "log_as_json", false, "log JSON")
	flags.StringVar(&f.logStacks, "log_stacktrace_level", "default:none",
		"lowest level of lines with a stack trace: level, or scope:level, separated by commas")
	flags.StringVar(&f.logCallers, "log_caller", "", "scopes whose lines name their source location, separated by commas; all for every scope")
	flags.Uint16Var(&f.ctrlzPort, "ctrlz_port", 9876,
		"port of ControlZ, with which istioctl admin log reads and sets log levels; 0 for a free one")
	flags.StringVar(&f.ctrlzAddress, "ctrlz_address", "localhost",
		"address of ControlZ; empty to disable it. Clients on other hosts must be authorized to read debug pages")
	o.AdminPages = e.Asked("UNSAFE_ENABLE_ADMIN_ENDPOINTS")
	o.NoDebugHTTP = !e.Permitted("ENABLE_DEBUG_ON_HTTP")
	o.DebugNamespaces = cli.Fields(e.Text("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", ""))
	if !e.Enabled("ENABLE_DEBUG_ENDPOINT_AUTH") {
		e.Warn("ENABLE_DEBUG_ENDPOINT_AUTH=false has no effect: clients on other hosts always need authorization to read debug " +
			"pages. DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES allows more namespaces")
	}

	text := func(name, value string) {
		flags.String(name, value, "taken for compatibility; has no effect")
		f.unused = append(f.unused, name)
	}
	text("clusterRegistriesNamespace", "istio-system")
	text("tls-cipher-suites", "")
	text("log_target", "stdout")
}

// UnknownFlags returns the names of flags in args that the set does not have.
func UnknownFlags(flags *pflag.FlagSet, args []string) []string {
	var unknown []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			break
		}
		dashes := len(args[i]) - len(strings.TrimLeft(args[i], "-"))
		name, _, hasValue := strings.Cut(args[i][dashes:], "=")
		var flag *pflag.Flag
		switch {
		case dashes == 0 || name == "":
			continue
		case dashes == 1:
			flag = flags.ShorthandLookup(name[:1])
			hasValue = hasValue || len(name) > 1
		default:
			flag = flags.Lookup(name)
		}
		switch {
		case flag != nil && flag.NoOptDefVal == "" && !hasValue:
			i++ // skip the flag's value
		case flag == nil && !slices.Contains(unknown, name):
			unknown = append(unknown, name)
		}
	}
	return unknown
}
