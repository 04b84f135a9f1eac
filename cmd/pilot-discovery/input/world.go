package input

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// World selects the configuration that a command reads. The commands that read a directory share its flags.
type World struct {
	ConfigDir, domain, meshConfig, networks, clusterID, Namespace string

	snapshot.Settings // in which HTTP3 says whether HTTP/3 is asked for

	noHostNames  bool
	ranges       serviceentry.Ranges
	multiCluster clusterset.Options
	alpha        bool   // alpha parts of the Gateway API
	policy       string // COMPLIANCE_POLICY
	refusal      error  // a value of a variable that restricts cannot be read

	gatewayController, gatewayClass string // values of variables
}

// Register registers the flags, with --namespace for the root namespace.
func (f *World) Register(flags *pflag.FlagSet, e *env.Env) {
	flags.StringVar(&f.ConfigDir, "configDir", "", "directory of YAML that describes the mesh, watched for changes")
	f.RegisterMesh(flags, e, "namespace", "n")
}

// RegisterMesh registers the flags. name and short are the names of the flag for the root namespace.
func (f *World) RegisterMesh(flags *pflag.FlagSet, e *env.Env, name, short string) {
	f.HTTP3, f.PersistentSessions = e.Asked(http3.Variable), e.Asked(names.SessionsVariable)
	f.multiCluster, f.alpha = multiCluster(e), e.Asked(names.AlphaVariable)
	f.policy = e.Text(compliance.Variable, "")
	f.HeadlessChains = e.Asked(names.HeadlessChainsVariable)
	f.ScopedGateways = e.Restricted(names.ScopeGatewaysVariable)
	f.refusal = e.RefusalOf(names.ScopeGatewaysVariable, clusterset.DiscoveryVariable, clusterset.ClusterLocalVariable)
	f.Tuning.HTTP10 = e.Asked("PILOT_HTTP10")
	f.Tuning.RemoteAddress = e.Asked("PILOT_SIDECAR_USE_REMOTE_ADDRESS")
	f.Tuning.HandshakeTimeout = e.Bound("PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", node.DefaultHandshakeTimeout)
	if f.Tuning.HandshakeTimeout == 0 {
		f.Tuning.HandshakeTimeout = -1
	}
	f.noHostNames = !e.Permitted("RESOLVE_HOSTNAME_GATEWAYS")
	ranges := serviceentry.DefaultRanges()
	f.ranges.IPv4 = e.Prefix("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", ranges.IPv4, serviceentry.LongestIPv4)
	f.ranges.IPv6 = e.Prefix("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", ranges.IPv6, serviceentry.LongestIPv6)
	f.gatewayController = e.Text("PILOT_GATEWAY_API_CONTROLLER_NAME", names.GatewayController)
	f.gatewayClass = e.Text("PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME", "istio")
	flags.StringVar(&f.domain, "domain", "cluster.local", "DNS domain of the cluster")
	flags.StringVar(&f.meshConfig, "meshConfig", "./etc/istio/config/mesh",
		"file with the mesh configuration; if it does not exist, the ConfigMap istio in the root namespace")
	flags.StringVar(&f.networks, "networksConfig", "./etc/istio/config/meshNetworks", "file with the mesh networks")
	flags.StringVar(&f.clusterID, "clusterID", e.Text("CLUSTER_ID", "Kubernetes"), "ID of the cluster in which this server runs")
	flags.StringVarP(&f.Namespace, name, short, e.Text("POD_NAMESPACE", "istio-system"), "root namespace")
}

// Options sets the options that the flags hold. It returns an error for an unknown COMPLIANCE_POLICY.
func (f *World) Options(o *ingest.Options) (err error) {
	o.ConfigDir, o.Domain, o.MeshConfig, o.MeshNetworks, o.ClusterID, o.Namespace = f.ConfigDir, f.domain, f.meshConfig, f.networks,
		f.clusterID, f.Namespace
	o.Settings, o.NoHostNames, o.AutoAddresses, o.MultiCluster = f.Settings, f.noHostNames, f.ranges, f.multiCluster
	o.AlphaGatewayAPI = f.alpha
	o.GatewayController, o.GatewayClass = f.gatewayController, f.gatewayClass
	o.Compliance, err = compliance.Parse(f.policy)
	// Envoy does not apply such a policy to the handshakes of QUIC.
	o.HTTP3 = f.HTTP3 && o.Compliance == compliance.None
	return err
}

// WithoutHTTP3 reports whether HTTP/3 is asked for and COMPLIANCE_POLICY turns it off.
func (f *World) WithoutHTTP3() bool { return f.HTTP3 && f.policy != "" }

// Read reads configuration once, from the directory of the flags or from the texts of the options. It discards log
// messages other than findings.
func Read(c *cobra.Command, f World, o ingest.Options) (*inspect.Inspection, error) {
	if f.refusal != nil {
		return nil, f.refusal
	}
	checks := MeshChecks()
	if c.Flags().Lookup("istioNamespace") == nil {
		checks["namespace"] = cli.CheckNamespace // namespace is the root namespace
	}
	if err := checks.Run(c.Flags()); err != nil {
		return nil, err
	}
	if err := CheckMeshFiles(c.Flags()); err != nil {
		return nil, err
	}
	p := cli.NewProgress(c.ErrOrStderr(), "reading the configuration")
	defer p.Done()
	o.Logger, o.Limits, o.NoWatch = slog.New(slog.DiscardHandler), limits.Default(), true
	if err := f.Options(&o); err != nil {
		return nil, err
	}
	return inspect.Read(c.Context(), o, catalog.With(catalog.Options{Compliance: o.Compliance}))
}

// Unreadable warns about the kinds of objects that this user may not read, because the answer may be wrong without
// these.
type Unreadable struct{ warned bool }

// Warn prints a warning for each kind to the standard error. A watch repeats its output: there the warnings are part of
// an output for people, and are printed once beside any other output.
func (u *Unreadable) Warn(c *cobra.Command, i *inspect.Inspection, out io.Writer, watch, people bool) {
	w := c.ErrOrStderr()
	if watch && people {
		w = out
	} else if u.warned {
		return
	}
	u.warned = true
	for _, d := range i.Unreadable() {
		fmt.Fprintln(w, terminal.Plain(d.String()))
	}
}

// SortedKeys returns the keys of objects, sorted by their text.
func SortedKeys(all map[kinds.Key]*kinds.Object) []kinds.Key {
	return slices.SortedFunc(maps.Keys(all), func(a, b kinds.Key) int { return strings.Compare(a.String(), b.String()) })
}
