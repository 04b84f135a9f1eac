package ingest

import (
	"strings"
	"testing"
	"time"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	networkingv1 "istio.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
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

// unread is a cluster of which nothing has been read.
type unread struct{}

func (unread) Clusters() []multicluster.Cluster { return []multicluster.Cluster{{ID: "own"}} }

func (unread) Current(string, *kinds.Kind) bool { return false }

// TestWorkloads: pods are known by the ID of their cluster, and not before the first Snapshot, nor without services.
// While a cluster cannot be read, it is not known which accounts there are; without one, every account is in use.
func TestWorkloads(t *testing.T) {
	for _, c := range []struct {
		what        string
		o           Options
		known, uses bool
	}{
		{"a cluster", Options{ClusterID: "own", Client: &rest.Config{}, CountNodeAccounts: true}, true, false},
		{"no services", Options{ClusterID: "own", Client: &rest.Config{}, NoServices: true}, false, true},
		{"files", Options{ClusterID: "own", CountNodeAccounts: true}, true, true},
	} {
		w := newTestWorld(t, c.o)
		all := Workloads{World: w.World, Sources: unread{}}
		if pod, known := all.Pod("own", "a", "web-0"); known {
			t.Errorf("%s, at first: %v", c.what, pod)
		}
		pod := &kinds.Object{
			Key: kinds.Key{Kind: kinds.Pod, Namespace: "a", Name: "web-0"}, UID: "1",
			Spec: &kube.PodFacts{ServiceAccount: "web", NodeName: "n1"},
		}
		w.apply(pod)
		for name, want := range map[string]identity.Pod{"web-0": {UID: "1", ServiceAccount: "web", Node: "n1"}, "web-1": {}} {
			if got, known := all.Pod("own", "a", name); known != c.known || known && got != want {
				t.Errorf("%s, pod %s: %v, %v", c.what, name, got, known)
			}
		}
		if got, _ := all.Pod("far", "a", "web-0"); got != (identity.Pod{}) {
			t.Errorf("%s: %v is of another cluster", c.what, got)
		}
		if c.o.CountNodeAccounts && (!all.RunsOn("own", "n1", "a", "web") || all.RunsOn("far", "n1", "a", "web")) {
			t.Errorf("%s: the pod is not on its node", c.what)
		}
		if all.CurrentPods("own") {
			t.Errorf("%s: the pods are known as they are now, and nothing was read", c.what)
		}
		if has, err := all.HasAccount("a", "web"); !has || err != nil {
			t.Errorf("%s, an account of a pod: %v, %v", c.what, has, err)
		}
		if has, err := all.HasAccount("a", "db"); has != c.uses || !has && (err == nil || !strings.Contains(err.Error(), "cluster own")) {
			t.Errorf("%s, an account of nothing: %v, %v", c.what, has, err)
		}
	}
}
