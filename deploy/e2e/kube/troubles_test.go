package kube

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestTroubles: the API server does not serve one kind, and the mesh configuration is invalid. Other kinds are not
// affected.
func TestTroubles(t *testing.T) {
	t.Parallel()
	w := newMesh(t)
	w.Interpose()
	entries := w.definition("serviceentries.networking.istio.io")
	w.remove(entries)
	w.serve()
	w.settled()
	w.through("a kind that is forbidden", w.forbidden)
	w.through("a kind that is not answered", w.unanswered)
	w.through("definitions that come and go", func() { w.definitions(entries) })
	w.through("a mesh that is broken", w.mesh)
}

// TestTroublesForLong: requests to the API server fail repeatedly, and the leader of two replicas is stopped, resumed
// and killed.
func TestTroublesForLong(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	t.Parallel()
	w := newMesh(t)
	w.Interpose()
	w.serve()
	w.settled()
	w.through("cut watches", w.cutWatches)
	w.through("failures", w.failures)
	w.through("a leader that is stopped", w.replicas)
}

var virtualServices = faults.Match{Group: "networking.istio.io", Resource: "virtualservices"}

// marked is the VirtualService of the shop with one more path.
func marked(path string) string {
	return strings.Replace(firstVirtualService, "{uri: {prefix: /marker}}", "{uri: {prefix: /marker}}, {uri: {prefix: "+path+"}}", 1)
}

// troubled checks the state while VirtualServices cannot be read: it is reported in three ways, they stay in force, and
// everything else works. mend ends the fault.
func (w *mesh) troubled(what, told string, begin, mend func()) {
	w.T.Helper()
	path := "/" + strings.ReplaceAll(what, " ", "-")
	w.eventually(what+" is told", func() bool {
		begin()
		return w.finding(told) && w.stalled("virtualservices")
	})
	w.eventually(what+" is logged", func() bool { return strings.Contains(w.said(), told) })
	w.Write(marked(path))
	w.comes("while " + what)
	for _, c := range w.clients {
		if c.has(envoy.RouteType, "80", path) {
			w.T.Errorf("%s: the change came nevertheless", what)
		}
	}
	for _, other := range []string{"services", "destinationrules", "customresourcedefinitions"} {
		if w.stalled(other) {
			w.T.Errorf("%s: %s is in trouble too", what, other)
		}
	}
	w.steady(what)
	mend()
	w.arrives(envoy.RouteType, "80", path)
	w.eventually(what+" is over", func() bool { return !w.finding(told) && !w.stalled("virtualservices") })
}

// forbidden revokes the right to read one kind at run time, and grants it again.
func (w *mesh) forbidden() {
	roles := w.Client().RbacV1().ClusterRoles()
	const name = "istiod-clusterrole-" + root
	role, err := roles.Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	set := func(rules []rbacv1.PolicyRule) {
		now, err := roles.Get(w.Ctx, name, metav1.GetOptions{})
		w.Must(err)
		now.Rules = rules
		_, err = roles.Update(w.Ctx, now, metav1.UpdateOptions{})
		w.Must(err)
	}
	less := role.DeepCopy().Rules
	for i, r := range less {
		less[i].Resources = slices.DeleteFunc(r.Resources, func(resource string) bool { return resource == virtualServices.Resource })
	}
	set(less)
	// The API server checks rights when a watch begins.
	w.troubled("no right", "does not let this server", func() { w.Between.CutWatches(virtualServices) }, func() { set(role.Rules) })
}

// unanswered lets the requests for one kind hang, on connections that are alive.
func (w *mesh) unanswered() {
	w.Between.Set(faults.Rule{Match: virtualServices, Delay: time.Hour})
	w.Between.CutWatches(virtualServices)
	w.troubled("no answer", "does not answer", func() {}, func() {
		w.Between.Set()
		w.Between.CutWatches(virtualServices)
	})
}

// silent checks that a fault without changes sends nothing to the clients.
func (w *mesh) silent(what string, fault func()) {
	before := w.received()
	fault()
	if n := w.received() - before; n != 0 {
		w.T.Errorf("%s: %d responses although nothing changed", what, n)
	}
}

func (w *mesh) received() (n int) {
	for _, c := range w.clients {
		n += c.received()
	}
	return n
}

// cutWatches resets every watch repeatedly. The server must not send more requests than the watches that it lost.
func (w *mesh) cutWatches() {
	watches, began := w.Between.Watches(faults.Match{}), time.Now()
	w.silent("cut watches", func() {
		w.Between.Forget()
		w.Between.CutWatchesEvery(time.Second)
		time.Sleep(4500 * time.Millisecond)
		w.Between.CutWatchesEvery(0)
	})
	cuts := int(time.Since(began) / time.Second)
	if n := w.Between.Count(faults.Match{}); n > 2*cuts*watches {
		w.T.Errorf("%d requests for %d watches that were cut %d times", n, watches, cuts)
	}
}

// failures makes some requests fail and some late.
func (w *mesh) failures() {
	watches := w.Between.Watches(faults.Match{})
	w.silent("failures", func() {
		w.Between.Set(faults.Rule{Share: 0.2, Status: http.StatusInternalServerError},
			faults.Rule{Share: 0.2, Status: http.StatusTooManyRequests, RetryAfter: time.Second},
			faults.Rule{Share: 0.2, Delay: 5 * time.Second})
		w.Between.Forget()
		began := time.Now()
		for range 4 {
			w.Between.CutWatches(faults.Match{})
			time.Sleep(time.Second)
		}
		if n, most := w.Between.Count(faults.Match{}), watches+int(10*time.Since(began).Seconds()); n > most {
			w.T.Errorf("%d requests of a server in trouble, more than %d", n, most)
		}
		w.Between.Set()
	})
}
