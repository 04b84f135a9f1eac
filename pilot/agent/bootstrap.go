package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/pilot/agent/bootstrap"
	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
)

// loopback returns the address by which Envoy and the agent reach each other.
func loopback(c *config.Config) string {
	if c.IPv6 {
		return "::1"
	}
	return "127.0.0.1"
}

// admin returns the HOST:PORT of Envoy's admin API.
func admin(c *config.Config) string {
	return net.JoinHostPort(loopback(c), strconv.Itoa(int(c.Envoy.AdminPort)))
}

// Bootstrap returns the configuration that Envoy starts with.
func Bootstrap(c *config.Config, logJSON bool, outlierLog string) (*bootstrapv3.Bootstrap, error) {
	return bootstrap.New(bootstrap.Options{
		Node: c.Node, ADS: socketPath(c.XDSSocket), SDS: socketPath(c.SDSSocket), Admin: admin(c), StateOfTheWorld: !c.DeltaXDS,
		Agent: &bootstrap.Agent{
			Proxy: c.Proxy, Annotations: c.Annotations, Status: uint16(c.Proxy.GetStatusPort()), ReadyPort: c.ReadyPort,
			MetricsPort: c.MetricsPort, LocalMetrics: c.LocalMetrics,
			SecureMetricsPort: c.SecureMetricsPort, SecureMergedPort: c.SecureMergedPort,
			IPv6: c.IPv6, JSONLog: logJSON, OutlierLog: outlierLog, CountConnections: c.Envoy.ExitOnZero, Compliance: c.Compliance,
		},
	})
}

// socketPath returns a path that cannot be mistaken for HOST:PORT.
func socketPath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "./" + filepath.Clean(path)
}

// grpcBootstrap returns the gRPC xDS bootstrap of an application that uses xDS itself. certificates is the folder of
// OUTPUT_CERTS. If it is empty, the application gets no certificates.
func grpcBootstrap(c *config.Config, certificates string) ([]byte, error) {
	socket, err := filepath.Abs(c.XDSSocket)
	if err != nil {
		return nil, fmt.Errorf("failed to make the gRPC bootstrap: %w", err)
	}
	node := c.Node
	meta := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, v := range node.GetMetadata().GetFields() {
		meta.Fields[key] = v
	}
	meta.Fields["GENERATOR"] = structpb.NewStringValue("grpc")
	encoded, err := protojson.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("failed to make the gRPC bootstrap: %w", err)
	}
	type object = map[string]any
	document := object{
		"xds_servers": []any{object{
			"server_uri": "unix://" + socket, "channel_creds": []any{object{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": object{
			"id": node.GetId(), "cluster": node.GetCluster(), "metadata": json.RawMessage(encoded),
			"locality": object{
				"region": node.GetLocality().GetRegion(), "zone": node.GetLocality().GetZone(), "sub_zone": node.GetLocality().GetSubZone(),
			},
		},
		"server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
	}
	if certificates != "" {
		if certificates, err = filepath.Abs(certificates); err != nil {
			return nil, fmt.Errorf("failed to make the gRPC bootstrap: %w", err)
		}
		document["certificate_providers"] = object{"default": object{"plugin_name": "file_watcher", "config": object{
			"certificate_file": filepath.Join(certificates, "cert-chain.pem"), "private_key_file": filepath.Join(certificates, "key.pem"),
			"ca_certificate_file": filepath.Join(certificates, "root-cert.pem"), "refresh_interval": "900s",
		}}}
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("failed to make the gRPC bootstrap: %w", err)
	}
	return append(text, '\n'), nil
}

// writeFile replaces a file atomically. It creates the folder if needed.
func writeFile(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	next := name + ".next"
	err := os.WriteFile(next, text, 0o644)
	if err == nil {
		err = os.Rename(next, name)
	}
	if err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	return nil
}
