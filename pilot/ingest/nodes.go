package ingest

import (
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// nodeAccount is a service account on a node.
type nodeAccount struct{ cluster, node, namespace, account string }

// accountsByNode counts the running pods of each service account on each node.
type accountsByNode struct {
	of    map[kinds.Key]nodeAccount
	count map[nodeAccount]int
}

func newAccountsByNode() *accountsByNode {
	return &accountsByNode{map[kinds.Key]nodeAccount{}, map[nodeAccount]int{}}
}

// apply applies the change of a Pod and ignores other kinds.
func (t *accountsByNode) apply(c kinds.Change) {
	if c.Kind != kinds.Pod {
		return
	}
	if had, ok := t.of[c.Key]; ok {
		delete(t.of, c.Key)
		if t.count[had]--; t.count[had] == 0 {
			delete(t.count, had)
		}
	}
	if c.Object == nil {
		return
	}
	f := kube.FactsOfPod(c.Object)
	if f.Ended || f.NodeName == "" {
		return
	}
	now := nodeAccount{c.Key.Cluster, f.NodeName, c.Namespace, f.ServiceAccount}
	t.of[c.Key] = now
	t.count[now]++
}

// RunsOn reports whether a pod of the service account runs on the node. cluster is the cluster's name in keys. The
// result is false unless Options.CountNodeAccounts is set.
func (w *World) RunsOn(cluster, node, namespace, account string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodeAccounts != nil && w.filter.selected(clusterNamespace{cluster, namespace}) &&
		w.nodeAccounts.count[nodeAccount{cluster, node, namespace, account}] > 0
}
