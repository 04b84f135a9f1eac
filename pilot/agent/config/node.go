package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
)

const (
	textPrefix = "ISTIO_META_"
	jsonPrefix = "ISTIO_METAJSON_"
)

// addresses returns the addresses of the proxy without repetition: those in INSTANCE_IP first, then those of the
// host.
func addresses(instanceIP string, host []netip.Addr) ([]netip.Addr, error) {
	var list []netip.Addr
	if instanceIP != "" {
		for part := range strings.SplitSeq(instanceIP, ",") {
			a, err := netip.ParseAddr(part)
			if err != nil {
				return nil, fmt.Errorf("INSTANCE_IP=%q: write an IP address", instanceIP)
			}
			list = append(list, a.Unmap())
		}
	}
	for _, a := range host {
		if a = a.Unmap(); !slices.Contains(list, a) && a.IsGlobalUnicast() {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("this host has no IP address: set INSTANCE_IP")
	}
	return list, nil
}

// makeNode returns the node by which Envoy identifies itself. Each variable ISTIO_META_KEY is an entry of its
// metadata, and each ISTIO_METAJSON_KEY is a JSON object of entries.
func (c *Config) makeNode(s Source, env *environment, role node.Type, ips []netip.Addr) (*corev3.Node, error) {
	meta := map[string]any{
		"NAME": c.Name, "NAMESPACE": c.Namespace, "ISTIO_VERSION": s.Version, "METADATA_DISCOVERY": "false",
		"PILOT_SAN":         []any{c.Security.ServerName},
		"ENVOY_STATUS_PORT": int(c.ReadyPort), "ENVOY_PROMETHEUS_PORT": int(c.MetricsPort),
		"WORKLOAD_IDENTITY_SOCKET_FILE": env.text("WORKLOAD_IDENTITY_SOCKET_FILE", ownSocket),
	}
	for key, value := range map[string]string{"SERVICE_ACCOUNT": c.Account, "OUTLIER_LOG_PATH": s.OutlierLog} {
		if value != "" {
			meta[key] = value
		}
	}
	for key, port := range map[string]uint16{secureMetrics: c.SecureMetricsPort, secureMerged: c.SecureMergedPort} {
		if port != 0 {
			meta[key] = int(port)
		}
	}
	if c.Envoy.SkipDeprecatedLogs {
		meta["ENVOY_SKIP_DEPRECATED_LOGS"] = "true"
	}
	if c.Envoy.ExitOnZero {
		meta["EXIT_ON_ZERO_ACTIVE_CONNECTIONS"] = "true"
	}
	addressList := lists.Map(ips, func(a netip.Addr) string { return a.String() })
	meta["INSTANCE_IPS"] = strings.Join(addressList, ",")
	labels := maps.Clone(c.Labels)
	for _, name := range slices.Sorted(maps.Keys(env.values)) {
		value := env.values[name]
		if key, ok := strings.CutPrefix(name, textPrefix); ok && value != "" {
			meta[key] = value
		} else if key, ok := strings.CutPrefix(name, jsonPrefix); ok && value != "" {
			entries := map[string]any{}
			if err := json.Unmarshal([]byte(value), &entries); err != nil {
				return nil, fmt.Errorf("%s: %w: write a JSON object", name, err)
			}
			if key != "LABELS" {
				maps.Copy(meta, entries)
				continue
			}
			for label, v := range entries {
				if _, ok := labels[label]; !ok {
					labels[label] = fmt.Sprint(v)
				}
			}
		}
	}
	if meta["POD_PORTS"] != nil { // templates write it with line breaks
		portsText, ok := meta["POD_PORTS"].(string)
		if !ok {
			return nil, errors.New("ISTIO_METAJSON_*: POD_PORTS: write a text that contains a list of container ports in JSON")
		}
		var ports []struct {
			Name          string `json:"name,omitempty"`
			ContainerPort int    `json:"containerPort"`
			Protocol      string `json:"protocol"`
		}
		if err := json.Unmarshal([]byte(portsText), &ports); err != nil {
			return nil, fmt.Errorf("ISTIO_META_POD_PORTS: %w: write a list of container ports in JSON", err)
		}
		text, err := json.Marshal(ports)
		if err != nil {
			return nil, fmt.Errorf("ISTIO_META_POD_PORTS: %w", err)
		}
		meta["POD_PORTS"] = string(text)
	}
	place, own := localityOf(labels)
	if own {
		labels[names.LabelLegacyLocality] = strings.Join(place, "/")
	}
	for key, values := range map[string]map[string]string{"LABELS": labels, "ANNOTATIONS": c.Annotations} {
		if len(values) == 0 {
			continue
		}
		entries := map[string]any{}
		for k, v := range values {
			entries[k] = v
		}
		meta[key] = entries
	}
	metadata, err := structpb.NewStruct(meta)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the metadata of the node: %w", err)
	}
	text, err := protojson.Marshal(c.Proxy)
	if err != nil {
		return nil, fmt.Errorf("ProxyConfig: %w", err)
	}
	metadata.Fields["PROXY_CONFIG"] = &structpb.Value{}
	if err := protojson.Unmarshal(text, metadata.Fields["PROXY_CONFIG"]); err != nil {
		return nil, fmt.Errorf("ProxyConfig: %w", err)
	}
	place = append(place, "", "", "")
	n := &corev3.Node{
		Id:      fmt.Sprintf("%s~%s~%s.%s~%s", role, ips[0], c.Name, c.Namespace, c.Domain),
		Cluster: c.serviceName(labels), Metadata: metadata,
		Locality: &corev3.Locality{Region: place[0], Zone: place[1], SubZone: place[2]},
	}
	if _, err := node.Parse(n); err != nil {
		return nil, fmt.Errorf("failed to make the node of the proxy: %w", err)
	}
	return n, nil
}

// serviceName returns the name of the proxy in traces.
func (c *Config) serviceName(labels map[string]string) string {
	canonical := cmp.Or(labels[names.LabelCanonicalName], labels[names.LabelAppName], labels["app"], c.Name)
	switch c.Proxy.GetTracingServiceName() {
	case meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY:
		return canonical
	case meshv1alpha1.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE:
		return canonical + "." + c.Namespace
	default:
		return cmp.Or(labels["app"], c.Proxy.GetServiceCluster(), "istio-proxy") + "." + c.Namespace
	}
}

// localityOf returns the region, zone and subzone in labels, and whether they are in one of Istio's own labels, which
// may use dots in place of slashes. Otherwise they are in the labels that Kubernetes copies from the node to the Pod.
func localityOf(labels map[string]string) (place []string, own bool) {
	for _, name := range []string{names.LabelLocality, names.LabelLegacyLocality} {
		if text := labels[name]; text != "" {
			if !strings.Contains(text, "/") {
				text = strings.ReplaceAll(text, ".", "/")
			}
			return strings.SplitN(text, "/", 3), true
		}
	}
	return []string{labels[names.LabelRegion], labels[names.LabelZone], labels[names.LabelSubzone]}, false
}

// hostOf returns the host of HOST:PORT.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
