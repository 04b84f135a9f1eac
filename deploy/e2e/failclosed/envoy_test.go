package failclosed

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// envoyWitness is a real Envoy that stays connected.
type envoyWitness struct{ *proxy.Proxy }

// startEnvoy runs an Envoy in a pod of its own until the test ends. It asks the address for its configuration, and the
// test for its certificates.
func startEnvoy(t *testing.T, node proxy.Node, address, dir string) envoyWitness {
	t.Helper()
	pod, err := network.Add(pods.Spec{Name: node.Name, Addr: node.Addr})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = pod.Close() })
	p, err := proxy.Start(proxy.Options{
		Binary: os.Getenv(suite.EnvoyVar), Location: pod, Node: node, XDS: address, SDS: serveSecrets(t, dir, node.Name), Delta: true,
		Admin: net.JoinHostPort("127.0.0.1", strconv.Itoa(pods.AdminPort)), WorkDir: dir,
	})
	must.Succeed(t, err)
	t.Cleanup(p.Stop)
	return envoyWitness{p}
}

func (e envoyWitness) String() string { return "Envoy " + e.Name() }

// view reads what Envoy has in force.
func (e envoyWitness) view(ctx context.Context) (view, error) {
	body, err := e.Get(ctx, "/config_dump?include_eds")
	if err != nil {
		return nil, err
	}
	var dump struct {
		Configs []struct {
			Clusters []struct {
				Cluster map[string]any `json:"cluster"`
			} `json:"dynamic_active_clusters"`
			Listeners []struct {
				Name   string `json:"name"`
				Active struct {
					Listener map[string]any `json:"listener"`
				} `json:"active_state"`
			} `json:"dynamic_listeners"`
			Routes []struct {
				Config map[string]any `json:"route_config"`
			} `json:"dynamic_route_configs"`
			Endpoints []struct {
				Config map[string]any `json:"endpoint_config"`
			} `json:"dynamic_endpoint_configs"`
		} `json:"configs"`
	}
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	v := emptyView()
	for _, config := range dump.Configs {
		for _, c := range config.Clusters {
			v["cds"][fmt.Sprint(c.Cluster["name"])] = c.Cluster
		}
		for _, l := range config.Listeners {
			if l.Active.Listener != nil {
				v["lds"][l.Name] = l.Active.Listener
			}
		}
		for _, r := range config.Routes {
			v["rds"][fmt.Sprint(r.Config["name"])] = r.Config
		}
		for _, e := range config.Endpoints {
			v["eds"][fmt.Sprint(e.Config["cluster_name"])] = e.Config
		}
	}
	return v, nil
}

// rejected returns how many updates Envoy has rejected, besides modules that are not there.
func (e envoyWitness) rejected(ctx context.Context) (n int, err error) {
	stats, err := e.Stats(ctx, `^(cluster|listener_manager|http|cluster_manager)\..*update_rejected$`)
	for _, v := range stats {
		n += v
	}
	return n, err
}

// secrets is an SDS server that has a certificate of one authority by any name, and its root.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	chain, key, root []byte
}

// serveSecrets serves secrets at a socket until the test ends, and returns its path.
func serveSecrets(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name+".sds")
	l, err := net.Listen("unix", path)
	must.Succeed(t, err)
	bundle, err := pki.NewSelfSigned("test", time.Hour, time.Now())
	must.Succeed(t, err)
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	leaf, _, err := bundle.Sign(pki.Leaf{URI: "spiffe://cluster.local/ns/a/sa/web", Key: key.Public(), TTL: time.Hour}, time.Now())
	must.Succeed(t, err)
	s := &secrets{chain: pki.EncodeCertificate(leaf), root: pki.EncodeCertificates(bundle.Certificate)}
	s.key, err = pki.EncodeKey(key)
	must.Succeed(t, err)
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return path
}

func (s *secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.GetResponseNonce() != "" {
			continue
		}
		answer := &discoveryv3.DiscoveryResponse{TypeUrl: r.GetTypeUrl(), VersionInfo: "1", Nonce: "1"}
		for _, name := range r.GetResourceNames() {
			packed, err := anypb.New(s.secret(name))
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, packed)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (s *secrets) secret(name string) *tlsv3.Secret {
	inline := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	if name == "ROOTCA" || strings.HasPrefix(name, "file-root:") {
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.root)},
		}}
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(s.chain), PrivateKey: inline(s.key),
	}}}
}
