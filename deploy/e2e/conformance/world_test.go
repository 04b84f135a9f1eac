package conformance

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Addresses of Gateways: usable can be requested, and unusable cannot be assigned.
var usable, unusable = netip.MustParseAddr("10.10.240.1"), netip.MustParseAddr("192.0.2.1")

// class is the GatewayClass of the tests.
const class = "istio"

var classes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}

// start starts a cluster with a node, and the control plane.
func start(ctx context.Context, t *testing.T, work string) *cluster.Cluster {
	t.Helper()
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	dir := os.Getenv(dirVar)
	c, err := cluster.Start(ctx, cluster.Options{Host: network.Gateway().String(), Dir: work,
		APIServerArgs: []string{"--kubelet-preferred-address-types=InternalIP"}})
	must(err)
	t.Cleanup(c.Stop)
	must(c.ApplyPath(ctx, filepath.Join(dir, "base.yaml")))
	must(c.InstallCRDs(ctx, filepath.Join(dir, "crds.yaml")))
	log, err := os.Create(filepath.Join(work, "node.log"))
	must(err)
	t.Cleanup(func() { _ = log.Close() })
	n, err := node.Start(ctx, node.Options{
		Cluster: c, Network: network, Dir: filepath.Join(work, "pods"), Contain: filepath.Join(dir, "contain"), Image: images(dir),
		Pods: netip.MustParsePrefix("10.10.16.0/20"), LoadBalancers: netip.MustParsePrefix("10.10.224.0/24"), Usable: []netip.Addr{usable},
		Owners: map[string]schema.GroupVersionResource{"Gateway": {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	must(err)
	t.Cleanup(n.Stop)
	must(c.ApplyPath(ctx, filepath.Join(dir, "istiod.yaml")))
	suite.Eventually(t, "the control plane's GatewayClass", func() bool {
		_, err := c.Dynamic().Resource(classes).Get(ctx, class, metav1.GetOptions{})
		return err == nil
	})
	return c
}

// images returns the images of the manifests, by name.
func images(dir string) func(string) (node.Image, bool) {
	bin := func(from, to string) (string, string) { return "/usr/local/bin/" + to, filepath.Join(dir, from) }
	image := func(files ...string) node.Image {
		i := node.Image{Files: map[string]string{}}
		for k := 0; k < len(files); k += 2 {
			to, from := bin(files[k], files[k+1])
			i.Files[to] = from
			if k == 0 {
				i.Entrypoint = []string{to}
			}
		}
		return i
	}
	return func(name string) (node.Image, bool) {
		switch {
		case strings.Contains(name, "/istiod-lite:"):
			return image("pilot-discovery", "pilot-discovery", "pilot-agent", "pilot-agent"), true
		case strings.Contains(name, "/pilot:"):
			return image("istiod", "pilot-discovery"), true
		case strings.Contains(name, "proxyv2"):
			return image("pilot-agent", "pilot-agent", "envoy.sh", "envoy", "envoy", "envoy.real"), true
		case strings.Contains(name, "/echo-basic:"):
			return image("echo", "echo-basic"), true
		case strings.Contains(name, "/echo-advanced:"):
			return image("mesh-echo", "server", "mesh-echo", "client"), true
		}
		return node.Image{}, false
	}
}
