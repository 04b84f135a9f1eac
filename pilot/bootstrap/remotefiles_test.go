package bootstrap

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestClustersOfFiles runs a server without an API server of its own. A kubeconfig in a file adds the services of a
// cluster, and the end of the file removes them. Proxies of that cluster wait for it, and for their Pods.
func TestClustersOfFiles(t *testing.T) {
	api := &apiserver.Server{}
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"ports": []any{map[string]any{"name": "http", "port": int64(80)}}},
	}}
	service.SetNamespace("shop")
	service.SetName("far")
	api.Put("/api/v1/namespaces/shop/services/far", service)
	at := httptest.NewServer(api)
	t.Cleanup(at.Close)
	o := testOptions(t)
	o.Kubeconfigs = t.TempDir()
	o.RemoteClient.Insecure = []string{"insecureSkipTLSVerify"} // for an API server without TLS
	s, err := New(o)
	must.Succeed(t, err)
	run(t, s)
	eventually(t, "the server is ready", s.ready.Load)
	far := func() bool {
		return slices.ContainsFunc(s.world.Snapshot().Services(), func(s *registry.Service) bool {
			return s.Host == "far.shop.svc.cluster.local"
		})
	}
	if far() || s.from.HasRemote() {
		t.Error("a remote cluster without a file")
	}
	kubeconfig := filepath.Join(o.Kubeconfigs, "west.yaml")
	write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: it\n"+
		"contexts: [{name: it, context: {cluster: west, user: it}}]\nusers: [{name: it, user: {token: secret}}]\n"+
		"clusters: [{name: west, cluster: {server: '"+at.URL+"'}}]\n")
	eventually(t, "the service of the remote cluster", far)
	v := view{World: s.world, s: s}
	if v.WorkloadKnown(s.world.Snapshot(), &node.Proxy{Cluster: "west"}) {
		t.Error("a proxy of the remote cluster does not wait for its Pod")
	}
	must.Succeed(t, os.Remove(kubeconfig))
	eventually(t, "the end of the service", func() bool { return !far() && !s.from.HasRemote() })
}
