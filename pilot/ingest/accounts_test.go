package ingest

import (
	"testing"
	"time"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// TestHasAccount: an account is there while a Pod that has not ended has it, or a machine, or a group of machines, in
// any cluster, whether or not the object counts.
func TestHasAccount(t *testing.T) {
	w := newTestWorld(t, Options{})
	has := func(what string, name string, want bool) {
		t.Helper()
		if got := w.HasAccount("a", name); got != want {
			t.Errorf("%s: %s is there: %t", what, name, got)
		}
		if w.HasAccount("b", name) {
			t.Errorf("%s: %s is in another namespace", what, name)
		}
	}
	object := func(kind *kinds.Kind, cluster, name string, spec any) *kinds.Object {
		return &kinds.Object{Key: kinds.Key{Kind: kind, Cluster: cluster, Namespace: "a", Name: name}, Spec: spec}
	}
	pod := func(cluster, name, account string, ended bool) *kinds.Object {
		return object(kinds.Pod, cluster, name, &kube.PodFacts{ServiceAccount: account, Ended: ended})
	}
	gone := func(o *kinds.Object) { w.Commit([]kinds.Change{{Key: o.Key}}, time.Time{}) }
	has("at first", "web", false)
	w.apply(pod("", "web-0", "web", false), pod("far", "web-0", "web", false))
	has("two pods", "web", true)
	gone(pod("", "web-0", "", false))
	has("one of another cluster", "web", true)
	w.apply(pod("far", "web-0", "web", true))
	has("it has ended", "web", false)
	w.apply(pod("far", "web-1", "web", false))
	w.apply(pod("far", "web-1", "db", false))
	has("made anew", "web", false)
	has("made anew", "db", true)
	entry := object(kinds.WorkloadEntry, "", "machine", &networkingv1.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "web"})
	entry.Labels = map[string]string{"istio.io/rev": "another"} // which does not count here
	w.apply(entry)
	has("a machine", "web", true)
	has("a machine", "default", false)
	registered := *entry
	registered.Annotations = map[string]string{"istio.io/autoRegistrationGroup": "machines"}
	w.apply(&registered)
	has("a machine that registered itself", "web", false)
	gone(entry)
	has("no machine", "web", false)
	group := object(kinds.WorkloadGroup, "", "machines", &networkingv1.WorkloadGroup{Template: &networkingv1alpha3.WorkloadEntry{}})
	w.apply(group)
	has("a group", "default", true)
	gone(group)
	has("no group", "default", false)
	gone(pod("far", "web-1", "", false))
	gone(pod("far", "web-0", "", false))
	if n := len(w.accounts); n > 0 {
		t.Errorf("%d accounts are left", n)
	}
}
