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

	"github.com/istiod-lite/istiod-lite/api/node"
)

// Source is where a configuration is read from.
type Source struct {
	Arguments
	Environ []string // in the form of os.Environ
	// Dir is the folder that relative paths are below; empty: the working directory.
	Dir string
	// Addresses are those of this host, but loopback and link-local ones.
	Addresses []netip.Addr
	// Hostname is the name of this host, which stands for POD_NAME on a virtual machine.
	Hostname string
	// Version is that of the agent.
	Version string
}

// Arguments are those of the command. A zero value is one that was not given.
type Arguments struct {
	Role           string // sidecar or router
	Domain         string // of the node; empty: NAMESPACE.svc.cluster.local
	Mesh           string // a file with the mesh's configuration; it may be missing
	ServiceCluster string
	Concurrency    int
	LogLevel       string // Envoy's: LEVEL,SCOPE:LEVEL,...
	ComponentLevel string // SCOPE:LEVEL,...
	LogJSON        bool
	OutlierLog     string
	// Stock leaves out what only Istio's build of Envoy has.
	Stock bool
}

// Config is what an agent does.
type Config struct {
	Name, Namespace, Domain, Account string
	Proxy                            *meshv1alpha1.ProxyConfig
	Node                             *corev3.Node
	Labels, Annotations              map[string]string // of the pod
	Addr                             netip.Addr        // by which others reach the proxy
	IPv6                             bool              // the host has no IPv4 address
	Security                         Security
	Envoy                            Envoy

	ReadyPort, MetricsPort uint16 // Envoy's own
	DNSCapture             bool
	DNSAddr                string // HOST:PORT
	DNSParallel            bool
	GRPCBootstrap          string // the file for applications that speak xDS themselves; empty: none
	Probers                string // ISTIO_KUBE_APP_PROBERS
	Prometheus             string // ISTIO_PROMETHEUS_ANNOTATIONS; empty for a gateway, whose Services have the agent's port
	LocalMetrics           bool   // metrics are for this pod alone
	MergeEnvoy             bool   // the agent's metrics include Envoy's
	XDSSocket, SDSSocket   string
	ForeignSDS             bool // another program has the certificates, and serves SDSSocket
	DeltaXDS               bool
	WasmInsecure           []string // HOST:PORT of registries that speak no TLS

	// Findings say what has no effect.
	Findings []string
}

// Envoy says how Envoy is started and ended.
type Envoy struct {
	Disabled                 bool
	Binary                   string
	Config                   string // the file that the bootstrap is written to
	Custom                   string // a bootstrap of the user's, in the place of the agent's; empty: none
	Override                 string // a file that is laid over the bootstrap; empty: none
	LogLevel, ComponentLevel string
	Concurrency              int // 0: one worker for each processor
	Drain                    time.Duration
	TerminationDrain         time.Duration
	MinimumDrain             time.Duration
	ExitOnZero               bool // connections end the drain
	FlushInterval            time.Duration
	FlushMinSizeKB           int
	AdminPort                uint16
	SkipDeprecatedLogs       bool
}

// ownSocket is the name of the socket that an agent serves certificates on.
const ownSocket = "socket"

// Read returns the configuration. The error names every argument, variable, file or field that is wrong, and how to
// write it.
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
	trust, err := c.proxyConfig(s, env)
	if err != nil {
		return nil, err
	}
	env.under(c.Proxy.GetProxyMetadata())

	c.Name, c.Namespace, c.Account = env.text("POD_NAME", strings.ToLower(short(s.Hostname))), env.text("POD_NAMESPACE", ""), env.text("SERVICE_ACCOUNT", "")
	c.Domain = cmp.Or(s.Domain, c.Namespace+".svc.cluster.local")
	if c.Name == "" || c.Namespace == "" {
		return nil, errors.New("who the proxy is: set POD_NAMESPACE, and POD_NAME where it is not the name of the host")
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
	c.DNSCapture, c.DNSAddr, c.DNSParallel = env.flag("ISTIO_META_DNS_CAPTURE"), env.text("DNS_PROXY_ADDR", "localhost:15053"), env.flag("DNS_FORWARD_PARALLEL")
	c.GRPCBootstrap = env.text("GRPC_XDS_BOOTSTRAP", "")
	c.Probers = env.text("ISTIO_KUBE_APP_PROBERS", "")
	if role == node.Sidecar {
		c.Prometheus = env.text("ISTIO_PROMETHEUS_ANNOTATIONS", "")
	}
	c.LocalMetrics, c.MergeEnvoy = env.flag("METRICS_LOCALHOST_ACCESS_ONLY"), read(env, "PILOT_AGENT_MERGE_ENVOY_STATS", true, "true or false", parseBool)
	c.DeltaXDS = read(env, "ISTIO_DELTA_XDS", true, "true or false", parseBool)
	folder := s.path(cmp.Or(c.Proxy.GetConfigPath(), "./etc/istio/proxy"))
	c.XDSSocket = filepath.Join(folder, "XDS")
	socket := env.text("WORKLOAD_IDENTITY_SOCKET_FILE", ownSocket)
	c.SDSSocket, c.ForeignSDS = s.path("./var/run/secrets/workload-spiffe-uds/"+socket), socket != ownSocket
	if filepath.Base(socket) != socket {
		env.errs = append(env.errs, fmt.Errorf("WORKLOAD_IDENTITY_SOCKET_FILE=%q: write the name of a socket in ./var/run/secrets/workload-spiffe-uds", socket))
	}
	c.WasmInsecure = strings.FieldsFunc(env.text("WASM_INSECURE_REGISTRIES", ""), func(r rune) bool { return r == ',' })
	c.Findings = append(c.Findings, env.unused()...)
	c.security(s, env, trust)
	c.envoy(s, env, folder)
	if c.Node, err = c.makeNode(s, env, role, ips); err != nil {
		return nil, err
	}
	if c.Envoy.Disabled {
		c.GRPCBootstrap = cmp.Or(c.GRPCBootstrap, filepath.Join(folder, "grpc-bootstrap.json"))
	}
	return c, errors.Join(env.errs...)
}

// short returns the name of a host without its domain.
func short(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// path returns a path of the agent's own: relative ones are below Dir.
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
	}
	if d := p.GetFileFlushInterval(); d != nil {
		c.Envoy.FlushInterval = d.AsDuration()
	}
	if n := env.number("TERMINATION_DRAIN_DURATION_SECONDS", -1); n >= 0 {
		c.Envoy.TerminationDrain = time.Duration(n) * time.Second
	}
}

// splitLevels takes the level of all scopes from LEVEL,SCOPE:LEVEL,... and returns the others as they are.
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
