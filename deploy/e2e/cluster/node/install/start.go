package install

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Namespace is the namespace of the charts.
const Namespace = "istio-system"

// Options configure Start. Network and Work are required.
type Options struct {
	// Network has the namespaces of pods.
	Network *pods.Network
	// Work is a folder for data and logs.
	Work string
	// Definitions are files and folders with CustomResourceDefinitions that are installed before the node starts.
	Definitions []string
	// Base and Istiod are the names of the manifests to apply, by default base and istiod. See Render.
	Base, Istiod string
	// Image returns an image by its name. It comes before the images of the charts.
	Image func(name string) (node.Image, bool)
	// Usable and Owners are options of the node: see node.Options.
	Usable []netip.Addr
	Owners map[string]schema.GroupVersionResource
}

// Start starts a cluster with a node, and applies the charts. It does not wait until the control plane is ready.
func Start(ctx context.Context, t *testing.T, o Options) (*cluster.Cluster, *node.Node) {
	t.Helper()
	dir := os.Getenv(DirVar)
	c, err := cluster.Start(ctx, cluster.Options{Host: o.Network.Gateway().String(), Dir: o.Work,
		APIServerArgs: []string{"--kubelet-preferred-address-types=InternalIP"}})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	must.Succeed(t, c.ApplyPath(ctx, filepath.Join(dir, cmp.Or(o.Base, "base")+".yaml")))
	for _, path := range o.Definitions {
		must.Succeed(t, c.InstallCRDs(ctx, path))
	}
	log, err := os.Create(filepath.Join(o.Work, "node.log"))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = log.Close() })
	n, err := node.Start(ctx, node.Options{
		Cluster: c, Network: o.Network, Dir: filepath.Join(o.Work, "pods"), Contain: filepath.Join(dir, "contain"),
		Image: func(name string) (node.Image, bool) {
			if o.Image != nil {
				if i, ok := o.Image(name); ok {
					return i, true
				}
			}
			return image(name)
		},
		Pods: netip.MustParsePrefix("10.10.16.0/20"), LoadBalancers: netip.MustParsePrefix("10.10.224.0/24"),
		Usable: o.Usable, Owners: o.Owners, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	must.Succeed(t, err)
	t.Cleanup(n.Stop)
	must.Succeed(t, c.ApplyPath(ctx, filepath.Join(dir, cmp.Or(o.Istiod, "istiod")+".yaml")))
	return c, n
}

// Image returns an image with programs from the folder of Prepare: pairs of a name there, and the name in the image.
// The first program is the entry point.
func Image(programs ...string) node.Image {
	i := node.Image{Files: map[string]string{}}
	for k := 0; k < len(programs); k += 2 {
		to := "/usr/local/bin/" + programs[k+1]
		i.Files[to] = filepath.Join(os.Getenv(DirVar), programs[k])
		if k == 0 {
			i.Entrypoint = []string{to}
		}
	}
	return i
}

// image returns the images of the charts, and the application of meshes.
func image(name string) (node.Image, bool) {
	switch {
	case strings.Contains(name, "/istiod-lite:"):
		return Image("pilot-discovery", "pilot-discovery", "pilot-agent", "pilot-agent"), true
	case strings.Contains(name, "proxyv2"):
		return Image("pilot-agent", "pilot-agent", "envoy.sh", "envoy", "envoy", "envoy.real"), true
	case strings.Contains(name, "/echo-advanced:"):
		return Image("mesh-echo", "server", "mesh-echo", "client"), true
	}
	return node.Image{}, false
}
