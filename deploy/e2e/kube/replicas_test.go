package kube

import (
	"maps"
	"net/http"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
)

// replicas runs two replicas, of which one writes. After a stop of the leader the other takes over, and the first one
// writes nothing when it resumes. After a kill the other takes over, too.
func (w *mesh) replicas() {
	another := *w.World
	one, two := w, &mesh{World: &another}
	one.eventually("the first leads", func() bool { return one.leads("istiod-0") })
	two.Interpose()
	two.launch("istiod-1")
	two.eventually("the second is ready", two.ready)

	one.Must(one.server.Signal(syscall.SIGSTOP))
	began := time.Now()
	two.eventually("the second leads", func() bool { return two.leads("istiod-1") })
	w.T.Logf("the leader was stopped: followed after %.1f s", time.Since(began).Seconds())
	one.Between.Forget()
	one.Must(one.server.Signal(syscall.SIGCONT))
	one.eventually("the first asks who leads, and knows that it does not", func() bool {
		return one.Between.Count(faults.Match{Verbs: []string{"get"}, Resource: "leases"}) >= 3
	})
	for _, r := range one.Between.Requests(faults.Match{Writes: true}) {
		if r.Code < http.StatusBadRequest {
			w.T.Errorf("the resumed leader writes: %s %s", r.Verb, r.Path)
		}
	}
	if !two.leads("istiod-1") {
		w.T.Error("the resumed leader has taken the lead back")
	}
	one.eventually("the resumed leader is ready", one.ready)
	one.unready.Store(0) // no request could reach it meanwhile

	two.Must(two.server.Kill())
	began = time.Now()
	one.eventually("the first leads again", func() bool { return one.leads("istiod-0") })
	w.T.Logf("the leader was killed: followed after %.1f s", time.Since(began).Seconds())
}

// leads reports whether that replica holds the Leases of all elections.
func (w *mesh) leads(name string) bool {
	leases, err := w.Client().CoordinationV1().Leases(root).List(w.Ctx, metav1.ListOptions{})
	held := map[string]string{}
	if err == nil {
		for _, l := range leases.Items {
			held[l.Name] = ptr.Deref(l.Spec.HolderIdentity, "")
		}
	}
	others := slices.ContainsFunc(slices.Collect(maps.Values(held)), func(holder string) bool { return holder != name })
	return held["istio-workloadentry-cleanup"] == name && !others
}
