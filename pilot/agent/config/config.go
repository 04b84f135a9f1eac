package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// Source is the input of Read.
type Source struct {
	Arguments
	Environ []string // in the form of os.Environ
	// Dir is the folder that relative paths are resolved in. The default is the working directory.
	Dir string
	// Addresses are the addresses of this host without loopback and link-local ones.
	Addresses []netip.Addr
	// Hostname is the name of this host. It is the default of POD_NAME, for virtual machines.
	Hostname string
	// Version is the version of the agent.
	Version string
}

// Arguments are the arguments of the command. Zero values were not given.
type Arguments struct {
	Role string // "sidecar" or "router"
	// Domain is the domain of the node. The default is NAMESPACE.svc.cluster.local.
	Domain         string
	Mesh           string // file with the mesh configuration; it need not exist
	ServiceCluster string
	Concurrency    int
	// LogLevel is Envoy's, in the form LEVEL,SCOPE:LEVEL,...
	LogLevel       string
	ComponentLevel string // SCOPE:LEVEL,...
	LogJSON        bool
	OutlierLog     string
	// Stock omits features that only Istio's build of Envoy has.
	Stock bool
}

// Config is the configuration of an agent.
type Config struct {
	Name, Namespace, Domain, Account string
	Proxy                            *meshv1alpha1.ProxyConfig
	Node                             *corev3.Node
	Labels, Annotations              map[string]string // of the pod
	Addr                             netip.Addr        // address by which other workloads reach the proxy
	IPv6                             bool              // the host has no IPv4 address
	Security                         Security
	Envoy                            Envoy

	ReadyPort, MetricsPort uint16 // of Envoy
	// SecureMetricsPort is Envoy's port for its own metrics by mutual TLS, and SecureMergedPort its port for the agent's
	// merged metrics. Zero is none.
	SecureMetricsPort, SecureMergedPort uint16

	// DNSCapture starts the DNS proxy.
	DNSCapture  bool
	DNSAddr     string // HOST:PORT
	DNSParallel bool
	// DNSTimeout bounds one request to a server of the host.
	DNSTimeout time.Duration
	// GRPCBootstrap is the bootstrap file for applications that use xDS themselves. If it is empty, none is written.
	GRPCBootstrap string
	Probers       string // ISTIO_KUBE_APP_PROBERS
	// ProbeLocalhost sends probes of the application to localhost, not to Addr. ProbeHTTP1 makes the ones for HTTPS use
	// HTTP/1.1 alone.
	ProbeLocalhost, ProbeHTTP1 bool

	// Prometheus is ISTIO_PROMETHEUS_ANNOTATIONS. It is empty for gateways, whose Services may have the agent's port.
	Prometheus           string
	LocalMetrics         bool // serve metrics to this pod only
	MergeEnvoy           bool // include Envoy's metrics in the agent's
	XDSSocket, SDSSocket string
	ExternalSDS          bool // another program provides the certificates, on SDSSocket
	DeltaXDS             bool
	WasmInsecure         []string // HOST:PORT of registries without TLS
	// Compliance limits the TLS of the agent and of Envoy's bootstrap.
	Compliance compliance.Policy

	// Findings name settings that have no effect, with the reason.
	Findings []string
}

// Envoy is the configuration of the Envoy process.
type Envoy struct {
	Disabled bool
	Binary   string
	Config   string // file that the bootstrap is written to
	// Custom is the user's bootstrap file. If it is empty, the agent writes one.
	Custom string
	// Override is a file that is merged into the bootstrap. It may be empty.
	Override                 string
	LogLevel, ComponentLevel string
	// Concurrency is the number of worker threads. Zero means one for each processor.
	Concurrency        int
	Drain              time.Duration
	TerminationDrain   time.Duration
	MinimumDrain       time.Duration
	ExitOnZero         bool // the drain ends when no connections are left
	FlushInterval      time.Duration
	FlushMinSizeKB     int
	AdminPort          uint16
	SkipDeprecatedLogs bool
	CoreDump           bool
}

// ownSocket is the name of the socket on which the agent serves certificates.
const ownSocket = "socket"

// Read returns the configuration. The error names every argument, variable, file or field that is wrong, and says how
// to correct it.
func Read(s Source) (*Config, error) {
	env := newEnvironment(s.Environ)
	c := &Config{}
	role := node.Type(cmp.Or(s.Role, string(node.Sidecar)))
	if role != node.Sidecar && role != node.Router {
		return nil, fmt.Errorf("role %q: write sidecar or router", s.Role)
	}
	var err error
	if c.Labels, err = podInfo(s.path("./etc/istio/pod/labels")); err != nil {
		return nil, err
	}
	if c.Annotations, err = podInfo(s.path("./etc/istio/pod/annotations")); err != nil {
		return nil, err
	}
	trustDomain, err := c.proxyConfig(s, env)
	if err != nil {
		return nil, err
	}
	env.setDefaults(c.Proxy.GetProxyMetadata())

	c.Name = env.text("POD_NAME", strings.ToLower(hostLabel(s.Hostname)))
	c.Namespace, c.Account = env.text("POD_NAMESPACE", ""), env.text("SERVICE_ACCOUNT", "")
	c.Domain = cmp.Or(s.Domain, c.Namespace+".svc.cluster.local")
	if c.Name == "" || c.Namespace == "" {
		return nil, errors.New("the proxy has no name or no namespace: set POD_NAMESPACE, and POD_NAME unless it is the name of the host")
	}
	ips, err := addresses(env.text("INSTANCE_IP", ""), s.Addresses)
	if err != nil {
		return nil, err
	}
	c.Addr, c.IPv6 = ips[0], true
	for _, a := range ips {
		c.IPv6 = c.IPv6 && !a.Is4()
	}
	c.ReadyPort, c.MetricsPort = env.port("ENVOY_STATUS_PORT", 15021), env.port("ENVOY_PROMETHEUS_PORT", 15090)
	c.DNSCapture = env.flag("ISTIO_META_DNS_CAPTURE") || env.flag("ISTIO_META_ENABLE_DNS_SERVER")
	c.DNSAddr, c.DNSParallel = env.text("DNS_PROXY_ADDR", "localhost:15053"), env.flag("DNS_FORWARD_PARALLEL")
	c.DNSTimeout = env.duration("DNS_FORWARD_TIMEOUT", 5*time.Second)
	c.GRPCBootstrap = env.text("GRPC_XDS_BOOTSTRAP", "")
	c.Probers = env.text("ISTIO_KUBE_APP_PROBERS", "")
	c.ProbeLocalhost = env.flag("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION")
	c.ProbeHTTP1 = !read(env, "ISTIO_ENABLE_HTTP2_PROBING", true, "true or false", parseBool)
	c.securePorts(env)
	if role == node.Sidecar {
		c.Prometheus = env.text("ISTIO_PROMETHEUS_ANNOTATIONS", "")
	}
	c.LocalMetrics = env.flag("METRICS_LOCALHOST_ACCESS_ONLY")
	c.MergeEnvoy = read(env, "PILOT_AGENT_MERGE_ENVOY_STATS", true, "true or false", parseBool)
	c.DeltaXDS = read(env, "ISTIO_DELTA_XDS", true, "true or false", parseBool)
	configFolder := s.path(cmp.Or(c.Proxy.GetConfigPath(), "./etc/istio/proxy"))
	c.XDSSocket = filepath.Join(configFolder, "XDS")
	socket := env.text("WORKLOAD_IDENTITY_SOCKET_FILE", ownSocket)
	c.SDSSocket, c.ExternalSDS = s.path("./var/run/secrets/workload-spiffe-uds/"+socket), socket != ownSocket
	if filepath.Base(socket) != socket {
		env.errs = append(env.errs,
			fmt.Errorf("WORKLOAD_IDENTITY_SOCKET_FILE=%q: write the name of a socket in ./var/run/secrets/workload-spiffe-uds", socket))
	}
	c.WasmInsecure = strings.FieldsFunc(env.text("WASM_INSECURE_REGISTRIES", ""), func(r rune) bool { return r == ',' })
	if c.Compliance, err = compliance.Parse(env.text(compliance.Variable, "")); err != nil {
		env.errs = append(env.errs, err)
	}
	c.Findings = append(c.Findings, env.ineffective()...)
	c.security(s, env, trustDomain)
	c.envoy(s, env, configFolder)
	if c.Node, err = c.makeNode(s, env, role, ips); err != nil {
		return nil, err
	}
	if c.Envoy.Disabled {
		c.GRPCBootstrap = cmp.Or(c.GRPCBootstrap, filepath.Join(configFolder, "grpc-bootstrap.json"))
	}
	return c, errors.Join(env.errs...)
}

// securePorts reads the ports at which Envoy serves metrics by mutual TLS. They must be its own.
func (c *Config) securePorts(env *environment) {
	taken := map[uint16]string{
		c.ReadyPort: "ENVOY_STATUS_PORT", c.MetricsPort: "ENVOY_PROMETHEUS_PORT", uint16(c.Proxy.GetStatusPort()): "statusPort",
		uint16(c.Proxy.GetProxyAdminPort()): "proxyAdminPort",
	}
	for _, p := range []struct {
		name string
		port *uint16
	}{{secureMetrics, &c.SecureMetricsPort}, {secureMerged, &c.SecureMergedPort}} {
		*p.port = env.port(p.name, 0)
		if of := taken[*p.port]; of != "" && *p.port != 0 {
			env.errs = append(env.errs, fmt.Errorf("%s=%d: %s has this port: write another", p.name, *p.port, of))
		}
		taken[*p.port] = p.name
	}
	if c.SecureMergedPort != 0 && c.Proxy.GetStatusPort() == 0 {
		env.errs = append(env.errs, fmt.Errorf("%s: the agent merges no metrics with statusPort 0: set another statusPort", secureMerged))
	}
}

// Variables of the ports at which Envoy serves metrics by mutual TLS. They are entries of its metadata too.
const (
	secureMetrics = "ENVOY_SECURE_METRICS_PORT"
	secureMerged  = "ENVOY_SECURE_MERGED_METRICS_PORT"
)

// hostLabel returns the first label of a host name.
func hostLabel(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// path resolves a path in Dir, if it is relative.
func (s Source) path(p string) string {
	if filepath.IsAbs(p) || s.Dir == "" {
		return p
	}
	return filepath.Join(s.Dir, p)
}

func (c *Config) envoy(s Source, env *environment, folder string) {
	p := c.Proxy
	level, scopes := splitLevels(cmp.Or(s.LogLevel, "warning"))
	c.Envoy = Envoy{
		Disabled: env.flag("DISABLE_ENVOY"), Binary: cmp.Or(p.GetBinaryPath(), "envoy"), Config: filepath.Join(folder, "envoy-rev.json"),
		Custom: p.GetCustomConfigFile(), Override: env.text("ISTIO_BOOTSTRAP_OVERRIDE", ""),
		LogLevel: level, ComponentLevel: cmp.Or(scopes, s.ComponentLevel), Concurrency: int(p.GetConcurrency().GetValue()),
		Drain: p.GetDrainDuration().AsDuration(), TerminationDrain: p.GetTerminationDrainDuration().AsDuration(),
		MinimumDrain: env.duration("MINIMUM_DRAIN_DURATION", 5*time.Second), ExitOnZero: env.flag("EXIT_ON_ZERO_ACTIVE_CONNECTIONS"),
		FlushInterval: time.Second, FlushMinSizeKB: int(p.GetFileFlushMinSizeKb()),
		AdminPort: uint16(p.GetProxyAdminPort()), SkipDeprecatedLogs: read(env, "ENVOY_SKIP_DEPRECATED_LOGS", true, "true or false", parseBool),
		CoreDump: env.flag("ISTIO_ENVOY_ENABLE_CORE_DUMP"),
	}
	if d := p.GetFileFlushInterval(); d != nil {
		c.Envoy.FlushInterval = d.AsDuration()
	}
	if n := env.number("TERMINATION_DRAIN_DURATION_SECONDS", -1); n >= 0 {
		c.Envoy.TerminationDrain = time.Duration(n) * time.Second
	}
}

// splitLevels splits LEVEL,SCOPE:LEVEL,... into the level of all scopes and the levels of single ones.
func splitLevels(text string) (level, scopes string) {
	level = "warning"
	var others []string
	for part := range strings.SplitSeq(text, ",") {
		if strings.Contains(part, ":") {
			others = append(others, part)
		} else if part != "" {
			level = part
		}
	}
	if level == "warn" {
		level = "warning"
	}
	return level, strings.Join(others, ",")
}
