package failclosed

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// remoteCluster is the ID of the remote cluster.
const remoteCluster = "two"

// remoteRows are a remote cluster and the Secret that names it. api answers the requests of the server to that cluster;
// nil is for the document alone.
func remoteRows(api *faults.Proxy) []row {
	secret := func(kubeconfig string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: input, namespace: istio-system, labels: {istio/multiCluster: 'true'}}\n" +
			"data: {" + remoteCluster + ": " + kubeconfig + "}\n"
	}
	const good = "KUBECONFIG"
	pods := faults.Match{Verbs: []string{"list", "watch"}, Resource: "pods"}
	return []row{{
		input: "the Secret of a remote cluster, for its proxies", good: secret(good), errors: []fault{
			{name: "a kubeconfig that cannot be read", content: secret("bm9uc2Vuc2U="), said: "ClusterNotConnected", start: held, running: kept},
			{name: "an API server that is unreachable", spoil: func(*testing.T, string) { api.Refuse() }, said: "refused|reset|ClusterTimeout",
				silent: true, start: held, running: kept},
			{
				name: "403 of a kind", said: "does not let this server list and watch pods", start: held, running: kept,
				spoil: func(*testing.T, string) {
					api.Set(faults.Rule{Match: pods, Status: http.StatusForbidden})
					api.CutWatches(pods)
				},
			},
		},
	}}
}

// TestRemoteCluster breaks a remote cluster and the Secret that names it. Its witnesses are proxies of that cluster.
// The configuration is in the cluster of the server.
func TestRemoteCluster(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 13, false, func(n *proxy.Node) { n.Cluster = remoteCluster })
	startAPIServer(t, g)
	second, err := cluster.Start(g.ctx, cluster.Options{ServiceCIDR: "10.96.0.0/12"})
	must(t, err)
	t.Cleanup(second.Stop)
	api, err := faults.Start(g.ctx, second, "")
	must(t, err)
	t.Cleanup(api.Close)
	kubeconfig, err := api.Access(second.Admin()).Kubeconfig()
	must(t, err)
	g.options.Env = append(g.options.Env, "PILOT_REMOTE_CLUSTER_TIMEOUT=1s")
	must(t, second.Apply(g.ctx, []byte(g.world())))
	g.write(t, "", policy+suite.NamespacesYAML("istio-system"))
	own := g.write
	g.write = func(t *testing.T, name, yaml string) {
		t.Helper()
		if name != "world.yaml" { // it is in the remote cluster
			own(t, name, yaml)
		}
	}
	for _, r := range remoteRows(api) {
		r.good = strings.ReplaceAll(r.good, "KUBECONFIG", base64.StdEncoding.EncodeToString(kubeconfig))
		for _, f := range r.errors {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				heal := func() { api.Set(); api.Heal() }
				t.Cleanup(heal)
				before := g.begin(t, r)
				g.breaks(t, r, f)
				g.whileRunning(t, f, before)
				g.stop()
				g.mark(t)
				if ready, said := g.start(t, r, nil); !ready {
					t.Fatalf("the server is not ready: %s", said)
				}
				fresh := connect(t, g.grpc, g.node.Message())
				g.synced(t, fresh)
				if opened := g.posture(t, fresh).moreOpen(before); len(opened) > 0 {
					t.Errorf("at a first start: %s is more open than before:\n  %s", fresh, strings.Join(opened, "\n  "))
				}
				g.says(t, f)
				for _, w := range []witness{g.envoy, g.client} {
					g.check(t, "at a restart", kept, w, before)
				}
				heal()
				g.put(t, r, r.good)
				g.synced(t, g.envoy, g.client, fresh)
				for _, w := range []witness{g.envoy, g.client, fresh} {
					g.check(t, "once the cluster has been read", kept, w, before)
				}
			})
		}
	}
}
