package node

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Bounds of Parse. The transport bounds the whole message; these bound what is kept of it.
const (
	maxID    = 1 << 10  // bytes of a node id: a pod name, a namespace and a domain have 253 each at most
	maxDepth = 32       // levels of nested metadata values
	maxKept  = 64 << 10 // bytes of all kept strings of one node
	maxIPs   = 64       // addresses of one proxy
	maxTexts = 64       // other texts of the metadata
	maxText  = 256      // bytes of such a text, and of its key
)

// Parse extracts the used facts from a node. The result shares no memory with n, so a node with a megabyte of metadata
// costs nothing after it was parsed. An error describes the client's fault and quotes input only in part; the transport
// returns it as InvalidArgument.
//
// An id without an address is accepted. Labels and annotations are kept as sent, but only annotations of istio.io and
// its subdomains.
func Parse(n *corev3.Node) (*Proxy, error) {
	if n == nil {
		return nil, errors.New("the first request of a stream must carry a node")
	}
	p, addr, err := parseID(n.GetId())
	if err != nil {
		return nil, err
	}
	m := metadata{left: maxKept, fields: n.GetMetadata().GetFields()}
	for key, v := range m.fields {
		if !shallow(v, maxDepth) {
			return nil, fmt.Errorf("node metadata %.64q: nested more than %d levels deep", key, maxDepth)
		}
	}
	m.read(p)
	p.Locality = [3]string{m.keep(n.GetLocality().GetRegion()), m.keep(n.GetLocality().GetZone()), m.keep(n.GetLocality().GetSubZone())}
	p.Service = m.keep(n.GetCluster())
	p.IPs = addresses(m.str("INSTANCE_IPS"))
	p.Others = m.others(p) // texts that no field has taken
	if m.err != nil {
		return nil, fmt.Errorf("node metadata %w", m.err)
	}
	if len(p.IPs) == 0 && addr != "" {
		if p.IPs = addresses(addr); len(p.IPs) == 0 {
			return nil, fmt.Errorf("node id: %.64q is not an IP address", addr)
		}
	}
	if p.Namespace == "" {
		p.Namespace, _, _ = strings.Cut(p.Domain, ".")
	}
	v := n.GetUserAgentBuildVersion().GetVersion()
	p.Envoy = [3]uint32{v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch()}
	p.Capabilities = Extensions(n.GetExtensions())
	if slices.Compare(p.Envoy[:], []uint32{1, 37}) >= 0 {
		p.Capabilities |= VHDS
	}
	if slices.Compare(p.Envoy[:], []uint32{1, 40}) >= 0 {
		p.Capabilities |= RecentCommands
	}
	return p, nil
}

func parseID(id string) (p *Proxy, addr string, err error) {
	switch {
	case id == "":
		return nil, "", errors.New("node id is empty: it must be type~ip~name.namespace~domain")
	case len(id) > maxID:
		return nil, "", fmt.Errorf("node id has %d bytes, at most %d are allowed", len(id), maxID)
	case !utf8.ValidString(id):
		return nil, "", errors.New("node id is not valid UTF-8")
	case strings.ContainsFunc(id, unicode.IsControl): // it is used in logs and labels
		return nil, "", fmt.Errorf("node id %q holds control characters", id)
	}
	id = strings.Clone(id)
	part := strings.Split(id, "~")
	if len(part) != 4 {
		return nil, "", fmt.Errorf("node id %q has %d parts separated by ~, it must have four: type~ip~name.namespace~domain", id, len(part))
	}
	if part[2] == "" {
		return nil, "", fmt.Errorf("node id %q does not say who the proxy is: it must be type~ip~name.namespace~domain", id)
	}
	p = &Proxy{Type: Type(part[0]), ID: part[2], Name: part[2], Domain: part[3], Interception: Redirect}
	switch p.Type {
	case Sidecar, Router:
	case "waypoint", "ztunnel", "agentgateway":
		return nil, "", fmt.Errorf("proxies of type %q are not served, only sidecar and router are", part[0])
	default:
		return nil, "", fmt.Errorf("node id %q: unknown proxy type %q, it must be sidecar or router", id, part[0])
	}
	// A pod's name may contain dots, a namespace's may not.
	if i := strings.LastIndexByte(p.ID, '.'); i >= 0 {
		p.Name = p.ID[:i]
	}
	return p, part[1], nil
}

// shallow reports whether v nests at most depth levels. It descends no further than that.
func shallow(v *structpb.Value, depth int) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		for _, f := range k.StructValue.GetFields() {
			if depth == 0 || !shallow(f, depth-1) {
				return false
			}
		}
	case *structpb.Value_ListValue:
		for _, f := range k.ListValue.GetValues() {
			if depth == 0 || !shallow(f, depth-1) {
				return false
			}
		}
	}
	return true
}

// metadata reads known keys. The first error stays in err, and every later read returns a zero value.
type metadata struct {
	fields map[string]*structpb.Value
	left   int // remaining bytes that may be kept
	err    error
}

// field is a key of the metadata, and the proxy's field for its value.
type field[T any] struct {
	key   string
	value *T
}

// texts returns the fields whose value is a plain text.
func texts(p *Proxy) [11]field[string] {
	return [...]field[string]{
		{"NAMESPACE", &p.Namespace},
		{"CLUSTER_ID", &p.Cluster},
		{"NETWORK", &p.Network},
		{"NODE_NAME", &p.NodeName},
		{"WORKLOAD_NAME", &p.Workload},
		{"SERVICE_ACCOUNT", &p.Account},
		{"MESH_ID", &p.MeshID},
		{"ISTIO_VERSION", &p.Version},
		{"ISTIO_REVISION", &p.Revision},
		{"GENERATOR", &p.Generator},
		{"AUTO_REGISTER_GROUP", &p.RegisterGroup},
	}
}

// flags returns the boolean fields.
func flags(p *Proxy) [7]field[bool] {
	return [...]field[bool]{
		{"HTTP10", &p.HTTP10},
		{"UNPRIVILEGED_POD", &p.Unprivileged},
		{"DNS_CAPTURE", &p.DNSCapture},
		{"DNS_AUTO_ALLOCATE", &p.DNSAutoAllocate},
		{"ENABLE_SELF_DISCOVERY", &p.SelfDiscovery},
		{"INBOUND_LISTENER_EXACT_BALANCE", &p.InboundExactBalance},
		{"OUTBOUND_LISTENER_EXACT_BALANCE", &p.OutboundExactBalance},
	}
}

func (m *metadata) read(p *Proxy) {
	for _, f := range texts(p) {
		*f.value = m.str(f.key)
	}
	for _, f := range flags(p) {
		*f.value = m.flag(f.key)
	}
	p.NetworkView = list(m.str("REQUESTED_NETWORK_VIEW"))
	switch i := Interception(m.str("INTERCEPTION_MODE")); i {
	case TPROXY, None:
		p.Interception = i
	}
	p.HTTPProxyPort = m.port("HTTP_PROXY_PORT")
	p.IdleTimeout = m.timeout(idleTimeout)
	p.StatusPort, p.MetricsPort = m.port("ENVOY_STATUS_PORT"), m.port("ENVOY_PROMETHEUS_PORT")
	p.SecurePorts = [2]uint32{m.port("ENVOY_SECURE_METRICS_PORT"), m.port("ENVOY_SECURE_MERGED_METRICS_PORT")}
	if p.ClientFiles = m.files(clientFiles); p.ClientFiles.Chain == "" {
		p.ClientFiles = Files{} // as in istiod
	}
	p.ServerFiles = m.files(serverFiles)

	p.Labels = m.strings("LABELS", nil)
	for k, v := range m.strings("STATIC_LABELS", nil) {
		if _, ok := p.Labels[k]; !ok {
			lists.Put(&p.Labels, k, v)
		}
	}
	p.Annotations = m.strings("ANNOTATIONS", func(key string) bool {
		domain, _, ok := strings.Cut(key, "/")
		return ok && (domain == "istio.io" || strings.HasSuffix(domain, ".istio.io"))
	})
	m.proxyConfig(p)
}

// others returns the texts of the metadata that no other field of the proxy has. Texts beyond the bounds are left out,
// because only EnvoyFilters use them. Proxies share equal lists.
func (m *metadata) others(p *Proxy) frozen.List[Text] {
	held := []string{"NAME", "INSTANCE_IPS", "REQUESTED_NETWORK_VIEW",
		"INTERCEPTION_MODE", "HTTP_PROXY_PORT", "ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT",
		"ENVOY_SECURE_METRICS_PORT", "ENVOY_SECURE_MERGED_METRICS_PORT"}
	for _, f := range texts(p) {
		held = append(held, f.key)
	}
	for _, f := range flags(p) {
		held = append(held, f.key)
	}
	var list []Text
	for key, v := range m.fields {
		s, ok := v.GetKind().(*structpb.Value_StringValue)
		if ok && len(key) <= maxText && len(s.StringValue) <= maxText && !slices.Contains(held, key) {
			list = append(list, Text{key, s.StringValue})
		}
	}
	slices.SortFunc(list, func(a, b Text) int { return strings.Compare(a.Key, b.Key) })
	var kept []Text
	for _, t := range list[:min(len(list), maxTexts)] {
		if n := len(t.Key) + len(t.Value); n <= m.left {
			m.left -= n
			kept = append(kept, Text{strings.Clone(t.Key), strings.Clone(t.Value)})
		}
	}
	return frozen.ListOf(kept...)
}

func (m *metadata) proxyConfig(p *Proxy) {
	v := m.get("PROXY_CONFIG")
	if v == nil {
		return
	}
	if v.GetStructValue() == nil {
		m.fail("PROXY_CONFIG", "an object", v)
		return
	}
	p.ProxyConfig = true
	if s, err := mesh.Settings(v.GetStructValue()); err != nil {
		m.refuse("PROXY_CONFIG", err)
	} else {
		p.Settings = m.keep(s)
	}
	port := func(name string) uint32 {
		n := v.GetStructValue().GetFields()[name].GetNumberValue()
		if n != math.Trunc(n) || n < 0 || n > math.MaxUint16 {
			return 0
		}
		return uint32(n)
	}
	p.AgentPort, p.AdminPort = port("statusPort"), port("proxyAdminPort")
	p.ReadinessProbe = v.GetStructValue().GetFields()["readinessProbe"].GetStructValue() != nil
	if t, err := mesh.OwnTracing(v.GetStructValue()); err != nil {
		m.refuse("PROXY_CONFIG", err)
	} else {
		p.Tracing = m.keep(t)
	}
}

// get returns the value of a key, nil if it is absent or null.
func (m *metadata) get(key string) *structpb.Value {
	v := m.fields[key]
	switch v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return nil
	}
	return v
}

func (m *metadata) fail(key, want string, got *structpb.Value) {
	if m.err == nil {
		m.err = fmt.Errorf("%.64s must be %s, not %s", key, want, describe(got))
	}
}

// refuse records an error in the value of a key.
func (m *metadata) refuse(key string, err error) {
	if m.err == nil {
		m.err = fmt.Errorf("%s: %.256s", key, err) //nolint:errorlint // the text is shortened
	}
}

func describe(v *structpb.Value) string {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return fmt.Sprintf("%.64q", k.StringValue)
	case *structpb.Value_NumberValue:
		return "the number " + strconv.FormatFloat(k.NumberValue, 'g', -1, 64)
	case *structpb.Value_BoolValue:
		return strconv.FormatBool(k.BoolValue)
	case *structpb.Value_StructValue:
		return "an object"
	case *structpb.Value_ListValue:
		return "a list"
	}
	return "null"
}

// keep copies s, so that the message that contained it can be freed.
func (m *metadata) keep(s string) string {
	if m.left -= len(s); m.left < 0 {
		if m.err == nil {
			m.err = fmt.Errorf("is too large: labels, annotations and names may have %d bytes in all", maxKept)
		}
		return ""
	}
	return strings.Clone(s)
}

func (m *metadata) str(key string) string {
	v := m.get(key)
	if v == nil {
		return ""
	}
	if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
		return m.keep(s.StringValue)
	}
	m.fail(key, "a string", v)
	return ""
}

func (m *metadata) flag(key string) bool {
	v := m.get(key)
	switch k := v.GetKind().(type) {
	case nil:
		return false
	case *structpb.Value_BoolValue:
		return k.BoolValue
	case *structpb.Value_StringValue:
		if b, err := strconv.ParseBool(k.StringValue); err == nil || k.StringValue == "" {
			return b
		}
	}
	m.fail(key, `"true" or "false"`, v)
	return false
}

func (m *metadata) port(key string) uint32 {
	v := m.get(key)
	var n uint64
	var err error
	switch k := v.GetKind().(type) {
	case nil:
		return 0
	case *structpb.Value_StringValue:
		if k.StringValue == "" {
			return 0
		}
		n, err = strconv.ParseUint(k.StringValue, 10, 16)
	case *structpb.Value_NumberValue:
		n, err = strconv.ParseUint(strconv.FormatFloat(k.NumberValue, 'f', -1, 64), 10, 16)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil {
		m.fail(key, "a port number", v)
	}
	return uint32(n)
}

// idleTimeout is the key of how long a connection may be idle.
const idleTimeout = "IDLE_TIMEOUT"

func (m *metadata) timeout(key string) time.Duration { return parseTimeout(m.str(key)) }

// parseTimeout returns a duration of at most a year. It returns a negative duration for a text of 0, which means no
// limit. It returns 0 for other text, as istiod does, and for a negative duration, which Envoy would reject.
func parseTimeout(text string) time.Duration {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0 || d > 365*24*time.Hour:
		return 0
	case d == 0:
		return -1
	}
	return d
}

// filesKeys are the keys of Files.
type filesKeys struct{ chain, key, roots string }

var (
	clientFiles = filesKeys{"TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_KEY", "TLS_CLIENT_ROOT_CERT"}
	serverFiles = filesKeys{"TLS_SERVER_CERT_CHAIN", "TLS_SERVER_KEY", "TLS_SERVER_ROOT_CERT"}
)

// files returns the paths of some keys. A certificate without its key, or a key without its certificate, is left out.
func (m *metadata) files(keys filesKeys) Files {
	f := Files{Chain: m.str(keys.chain), Key: m.str(keys.key), Roots: m.str(keys.roots)}
	if f.Chain == "" || f.Key == "" {
		f.Chain, f.Key = "", ""
	}
	return f
}

func (m *metadata) strings(key string, want func(string) bool) map[string]string {
	v := m.get(key)
	if v == nil {
		return nil
	}
	if _, ok := v.GetKind().(*structpb.Value_StructValue); !ok {
		m.fail(key, "an object of strings", v)
		return nil
	}
	var out map[string]string
	for k, f := range v.GetStructValue().GetFields() {
		if want != nil && !want(k) {
			continue
		}
		s, ok := f.GetKind().(*structpb.Value_StringValue)
		if !ok {
			m.fail(key, "an object of strings", f)
			return nil
		}
		lists.Put(&out, m.keep(k), m.keep(s.StringValue))
	}
	return out
}

// list splits at commas and drops empty parts.
func list(s string) []string {
	var out []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

// addresses returns the IP addresses in a comma-separated list, in canonical form. Other entries are left out.
func addresses(s string) []string {
	var out []string
	for e := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(e))
		if err != nil || len(out) == maxIPs {
			continue
		}
		if t := a.Unmap().String(); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// capabilities are by the category of an extension and its type.
var capabilities = map[string]Capabilities{
	"envoy.filters.http io.istio.http.peer_metadata.Config":                        HTTPPeerMetadata,
	"envoy.filters.http istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig": ALPNFilter,
	"envoy.filters.http stats.PluginConfig":                                        HTTPStats,
	"envoy.filters.network stats.PluginConfig":                                     NetworkStats,
	"envoy.filters.network envoy.tcp.metadataexchange.config.MetadataExchange":     NetworkMetadataExchange,
}

// Extensions returns the capabilities that a node's list of extensions implies.
func Extensions(list []*corev3.Extension) Capabilities {
	var c Capabilities
	for _, e := range list {
		for _, url := range e.GetTypeUrls() {
			c |= capabilities[e.GetCategory()+" "+strings.TrimPrefix(url, "type.googleapis.com/")]
		}
	}
	return c
}
