package conformance

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// Addresses of Gateways: usable can be requested, and unusable cannot be assigned.
var usable, unusable = netip.MustParseAddr("10.10.240.1"), netip.MustParseAddr("192.0.2.1")

// class is the GatewayClass of the tests.
const class = "istio"

var classes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}

// start starts a cluster with a node, and the control plane.
func start(ctx context.Context, t *testing.T, work string) *cluster.Cluster {
	t.Helper()
	c, _ := install.Start(ctx, t, install.Options{
		Network: network, Work: work, Definitions: []string{filepath.Join(os.Getenv(install.DirVar), "crds.yaml")}, Image: image,
		Usable: []netip.Addr{usable},
		Owners: map[string]schema.GroupVersionResource{"Gateway": {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}},
	})
	suite.Eventually(t, "the control plane's GatewayClass", func() bool {
		_, err := c.Dynamic().Resource(classes).Get(ctx, class, metav1.GetOptions{})
		return err == nil
	})
	return c
}

// image returns the images of the suite, and of Istio's own istiod.
func image(name string) (node.Image, bool) {
	switch {
	case strings.Contains(name, "/pilot:"):
		return install.Image("istiod", "pilot-discovery"), true
	case strings.Contains(name, "/echo-basic:"):
		return install.Image("echo", "echo-basic"), true
	}
	return node.Image{}, false
}
