package ingest

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// TestAccountsByNode counts the accounts of running pods on each node, whatever becomes of the pods.
func TestAccountsByNode(t *testing.T) {
	n := newAccountsByNode()
	change := func(name, account, node string, ended bool) {
		k := kinds.Key{Kind: kinds.Pod, Namespace: "a", Name: name}
		var o *kinds.Object
		if account != "" {
			o = &kinds.Object{Key: k, Spec: &kube.PodFacts{ServiceAccount: account, NodeName: node, Ended: ended}}
		}
		n.apply(kinds.Change{Key: k, Object: o})
	}
	has := func(node, account string, want int) {
		t.Helper()
		if got := n.count[nodeAccount{"", node, "a", account}]; got != want {
			t.Errorf("%d pods of %s on %s: want %d", got, account, node, want)
		}
	}
	change("web-0", "web", "", false) // not scheduled yet
	has("", "web", 0)
	change("web-0", "web", "n1", false)
	change("web-1", "web", "n1", false)
	has("n1", "web", 2)
	change("web-1", "web", "n2", false)
	has("n1", "web", 1)
	has("n2", "web", 1)
	change("web-1", "web", "n2", true)
	has("n2", "web", 0)
	change("web-0", "", "", false)
	change("web-0", "", "", false)
	if len(n.count)+len(n.of) > 0 {
		t.Errorf("%v, %v", n.count, n.of)
	}
}
