package bootstrap

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func web() *corev3.Node {
	return node.Format(&node.Proxy{Type: node.Sidecar, Name: "web-0", Namespace: "a", Domain: "a.svc.cluster.local",
		IPs: []string{"10.0.0.1"}})
}

func TestNew(t *testing.T) {
	b, err := New(Options{Node: web(), ADS: "istiod.istio-system.svc:15010", SDS: "/run/sds", Admin: "127.0.0.1:0"})
	must.Succeed(t, err)
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
	clusters := b.GetStaticResources().GetClusters()
	if len(clusters) != 2 || clusters[0].GetName() != "xds-grpc" || clusters[0].GetType() != clusterv3.Cluster_STRICT_DNS ||
		clusters[1].GetName() != "sds-grpc" {
		t.Fatalf("clusters %v", clusters)
	}
	path := clusters[1].GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().GetPath()
	if path != "/run/sds" {
		t.Errorf("certificates come from %q", path)
	}
	if api := b.GetDynamicResources().GetAdsConfig().GetApiType(); api != corev3.ApiConfigSource_DELTA_GRPC {
		t.Errorf("asks by %v", api)
	}
	if n := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().
		GetFields()["re2.max_program_size.error_level"].GetNumberValue(); n != 32768 {
		t.Errorf("regular expressions may have %v instructions", n)
	}

	text, err := JSON(b)
	must.Succeed(t, err)
	again := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(text, again); err != nil || !proto.Equal(b, again) {
		t.Errorf("read back as %v, %v", again, err)
	}
	if second, err := JSON(b); err != nil || !bytes.Equal(text, second) {
		t.Errorf("written a second time it is %s, %v", second, err)
	}

	b, err = New(Options{Node: web(), ADS: "[::1]:15010", Admin: "127.0.0.1:0", StateOfTheWorld: true})
	must.Succeed(t, err)
	clusters = b.GetStaticResources().GetClusters()
	if len(clusters) != 1 || clusters[0].GetType() != clusterv3.Cluster_STATIC ||
		b.GetDynamicResources().GetAdsConfig().GetApiType() != corev3.ApiConfigSource_GRPC {
		t.Errorf("state of the world without certificates: %v", b)
	}
}

// TestSelfDiscovery checks that a proxy that asks for it has the cluster of its own workload, and that Envoy is told.
func TestSelfDiscovery(t *testing.T) {
	p, err := node.Parse(web())
	must.Succeed(t, err)
	p.SelfDiscovery = true
	for _, agent := range []*Agent{nil, {Proxy: &meshv1alpha1.ProxyConfig{}, OutlierLog: "/dev/stdout"}} {
		b, err := New(Options{Node: node.Format(p), ADS: "127.0.0.1:1", Admin: "127.0.0.1:0", Agent: agent})
		must.Succeed(t, err)
		if err := b.ValidateAll(); err != nil {
			t.Error(err)
		}
		i := slices.IndexFunc(b.StaticResources.Clusters, func(c *clusterv3.Cluster) bool { return c.Name == "local_cluster" })
		if i < 0 || b.ClusterManager.LocalClusterName != "local_cluster" {
			t.Fatalf("clusters %v, own cluster %q", b.StaticResources.Clusters, b.ClusterManager.LocalClusterName)
		}
		if c := b.StaticResources.Clusters[i]; c.GetType() != clusterv3.Cluster_EDS || c.EdsClusterConfig.EdsConfig.GetAds() == nil ||
			c.EdsClusterConfig.ServiceName != "local_cluster" || c.CircuitBreakers != nil {
			t.Errorf("cluster %v", c)
		}
		if agent != nil && b.ClusterManager.OutlierDetection.EventLogPath != "/dev/stdout" {
			t.Errorf("cluster manager %v", b.ClusterManager)
		}
	}
}

func TestRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"node id is empty":            {Node: &corev3.Node{}, ADS: "127.0.0.1:1", Admin: "127.0.0.1:0"},
		`control plane: "istiod"`:     {Node: web(), ADS: "istiod", Admin: "127.0.0.1:0"},
		`control plane: ":15010"`:     {Node: web(), ADS: ":15010", Admin: "127.0.0.1:0"},
		`control plane: "h:70000"`:    {Node: web(), ADS: "h:70000", Admin: "127.0.0.1:0"},
		`SDS server: "certificates"`:  {Node: web(), ADS: "127.0.0.1:1", SDS: "certificates", Admin: "127.0.0.1:0"},
		`admin API: "15000": write H`: {Node: web(), ADS: "127.0.0.1:1", Admin: "15000"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
