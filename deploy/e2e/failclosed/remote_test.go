package failclosed

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// remoteCluster is the ID of the remote cluster.
const remoteCluster = "two"

// remoteRows are a remote cluster and the Secret that names it. api answers the requests of the server to that cluster.
// It is nil for the document.
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
// One API server serves as both clusters: from its own, the server reads everything except services and pods.
func TestRemoteCluster(t *testing.T) {
	t.Parallel()
	g := newGroup(t, func(n *proxy.Node) { n.Cluster = remoteCluster })
	c, _ := useAPIServer(t, g)
	api, err := faults.Start(g.ctx, c, "")
	must.Succeed(t, err)
	t.Cleanup(api.Close)
	kubeconfig, err := api.Access(c.Admin()).Kubeconfig()
	must.Succeed(t, err)
	g.options.Env = append(g.options.Env, "PILOT_REMOTE_CLUSTER_TIMEOUT=1s")
	g.heal = func() { api.Set(); api.Heal() }
	rows := remoteRows(api)
	for i := range rows {
		r := &rows[i]
		r.world, r.good = policy, strings.ReplaceAll(r.good, "KUBECONFIG", base64.StdEncoding.EncodeToString(kubeconfig))
		r.args = func(string) []string { return []string{"--registries="} }
	}
	g.runAll(t, rows)
}
