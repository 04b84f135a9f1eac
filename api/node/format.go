package node

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Format returns the node for the bootstrap of this proxy. Parse returns p from it, without what only the running Envoy
// knows: its version and its extensions. The ID is composed from the other fields.
func Format(p *Proxy) *corev3.Node {
	m := formatter{}
	p.texts(m)
	if p.IdleTimeout != 0 {
		m.text(idleTimeout, max(p.IdleTimeout, 0).String()) // Others keeps the written text
	}
	for t := range p.Others.All {
		m.text(t.Key, t.Value)
	}
	m.files(clientFiles, p.ClientFiles)
	m.files(serverFiles, p.ServerFiles)
	m.texts("LABELS", p.Labels)
	m.texts("ANNOTATIONS", p.Annotations)
	if p.ProxyConfig {
		config := formatter{}
		maps.Copy(config, mesh.FormatSettings(p.Settings).GetFields())
		for name, port := range map[string]uint32{"statusPort": p.AgentPort, "proxyAdminPort": p.AdminPort} {
			if port != 0 {
				config[name] = structpb.NewNumberValue(float64(port))
			}
		}
		if p.ReadinessProbe {
			config["readinessProbe"] = formatter{}.value()
		}
		maps.Copy(config, mesh.FormatSettings(p.Tracing).GetFields())
		m["PROXY_CONFIG"] = config.value()
	}
	name, address := p.Name, ""
	if p.Namespace != "" {
		name += "." + p.Namespace
	}
	if len(p.IPs) > 0 {
		address = p.IPs[0]
	}
	n := &corev3.Node{
		Id:       fmt.Sprintf("%s~%s~%s~%s", p.Type, address, name, p.Domain),
		Cluster:  name,
		Metadata: &structpb.Struct{Fields: m},
	}
	if p.Workload != "" {
		n.Cluster = p.Workload + "." + p.Namespace
	}
	if p.Service != "" {
		n.Cluster = p.Service
	}
	if p.Locality != [3]string{} {
		n.Locality = &corev3.Locality{Region: p.Locality[0], Zone: p.Locality[1], SubZone: p.Locality[2]}
	}
	return n
}

// texts adds the metadata texts in fields other than Others.
func (p *Proxy) texts(m formatter) {
	for _, f := range texts(p) {
		m.text(f.key, *f.value)
	}
	for _, f := range flags(p) {
		if *f.value {
			m.text(f.key, "true")
		}
	}
	m.text("NAME", p.Name) // for users only: Parse reads it from the id
	m.text("REQUESTED_NETWORK_VIEW", strings.Join(p.NetworkView, ","))
	m.text("INSTANCE_IPS", strings.Join(p.IPs, ","))
	if p.Type == Sidecar {
		m.text("INTERCEPTION_MODE", string(p.Interception))
	}
	for key, port := range map[string]uint32{
		"ENVOY_STATUS_PORT": p.StatusPort, "ENVOY_PROMETHEUS_PORT": p.MetricsPort,
		"ENVOY_SECURE_METRICS_PORT": p.SecurePorts[0], "ENVOY_SECURE_MERGED_METRICS_PORT": p.SecurePorts[1],
	} {
		if port != 0 {
			m.text(key, strconv.FormatUint(uint64(port), 10))
		}
	}
	if p.HTTPProxyPort != 0 {
		m.text("HTTP_PROXY_PORT", strconv.FormatUint(uint64(p.HTTPProxyPort), 10))
	}
}

// formatter collects metadata. Empty values are left out.
type formatter map[string]*structpb.Value

func (f formatter) text(key, value string) {
	if value != "" {
		f[key] = structpb.NewStringValue(value)
	}
}

func (f formatter) files(keys filesKeys, files Files) {
	f.text(keys.chain, files.Chain)
	f.text(keys.key, files.Key)
	f.text(keys.roots, files.Roots)
}

func (f formatter) texts(key string, values map[string]string) {
	inner := formatter{}
	for k, v := range values {
		inner[k] = structpb.NewStringValue(v)
	}
	if len(inner) > 0 {
		f[key] = inner.value()
	}
}

func (f formatter) value() *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: f})
}
