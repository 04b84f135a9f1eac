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

// TestTroubles has an API server that is there and yet gives trouble: to one kind, which stays its own, or to requests
// of all.
func TestTroubles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.interpose()
	entries := w.definition("serviceentries.networking.istio.io")
	w.remove(entries)
	w.serve()
	w.settled()
	w.through("a kind that is forbidden", w.forbidden)
	w.through("a kind that is not answered", w.unanswered)
	w.through("definitions that come and go", func() { w.definitions(entries) })
	w.through("a mesh that is broken", w.mesh)
	w.through("cut watches", w.cutWatches)
	w.through("failures", w.failures)
	w.through("a leader that is stopped", w.replicas)
}

var virtualServices = faults.Match{Group: "networking.istio.io", Resource: "virtualservices"}

// marked is the VirtualService of the shop with one more path.
func marked(path string) string {
	return strings.Replace(firstVirtualService, "{uri: {prefix: /marker}}", "{uri: {prefix: /marker}}, {uri: {prefix: "+path+"}}", 1)
}

// troubled is what holds while VirtualServices cannot be read: it is told in three ways, they stay as they are, all
// else goes on. It ends with mend.
func (w *world) troubled(what, told string, begin, mend func()) {
	w.t.Helper()
	path := "/" + strings.ReplaceAll(what, " ", "-")
	w.eventually(what+" is told", func() bool {
		begin()
		return w.finding(told) && w.stalled("virtualservices")
	})
	w.eventually(what+" is logged", func() bool { return strings.Contains(w.said(), told) })
	w.apply(marked(path))
	w.comes("while " + what)
	for _, c := range w.clients {
		if c.has(envoy.RouteType, "80", path) {
			w.t.Errorf("%s: the change came nevertheless", what)
		}
	}
	for _, other := range []string{"services", "destinationrules", "customresourcedefinitions"} {
		if w.stalled(other) {
			w.t.Errorf("%s: %s is in trouble too", what, other)
		}
	}
	w.steady(what)
	mend()
	w.arrives(envoy.RouteType, "80", path)
	w.eventually(what+" is over", func() bool { return !w.finding(told) && !w.stalled("virtualservices") })
}

// forbidden takes the right to read one kind away at run time, and gives it back.
func (w *world) forbidden() {
	roles := w.Client().RbacV1().ClusterRoles()
	const name = "istiod-clusterrole-" + root
	role, err := roles.Get(w.ctx, name, metav1.GetOptions{})
	w.must(err)
	set := func(rules []rbacv1.PolicyRule) {
		now, err := roles.Get(w.ctx, name, metav1.GetOptions{})
		w.must(err)
		now.Rules = rules
		_, err = roles.Update(w.ctx, now, metav1.UpdateOptions{})
		w.must(err)
	}
	less := role.DeepCopy().Rules
	for i, r := range less {
		less[i].Resources = slices.DeleteFunc(r.Resources, func(resource string) bool { return resource == virtualServices.Resource })
	}
	set(less)
	// The API server looks at rights when a watch begins.
	w.troubled("no right", "does not let this server", func() { w.between.CutWatches(virtualServices) }, func() { set(role.Rules) })
}

// unanswered has the requests for one kind taken and never answered, on connections that are alive.
func (w *world) unanswered() {
	w.between.Set(faults.Rule{Match: virtualServices, Delay: time.Hour})
	w.between.CutWatches(virtualServices)
	w.troubled("no answer", "does not answer", func() {}, func() {
		w.between.Set()
		w.between.CutWatches(virtualServices)
	})
}

// silent wants a fault that changes nothing to send the clients nothing.
func (w *world) silent(what string, fault func()) {
	before := w.received()
	fault()
	if n := w.received() - before; n != 0 {
		w.t.Errorf("%s: %d responses although nothing changed", what, n)
	}
}

func (w *world) received() (n int) {
	for _, c := range w.clients {
		n += c.received()
	}
	return n
}

// cutWatches resets every watch again and again, which must not make the server ask for more than the watches that it
// lost.
func (w *world) cutWatches() {
	watches, began := w.between.Watches(faults.Match{}), time.Now()
	w.silent("cut watches", func() {
		w.between.Forget()
		w.between.CutWatchesEvery(time.Second)
		time.Sleep(4500 * time.Millisecond)
		w.between.CutWatchesEvery(0)
	})
	cuts := int(time.Since(began) / time.Second)
	if n := w.between.Count(faults.Match{}); n > 2*cuts*watches {
		w.t.Errorf("%d requests for %d watches that were cut %d times", n, watches, cuts)
	}
}

// failures has some requests fail and some come late.
func (w *world) failures() {
	watches := w.between.Watches(faults.Match{})
	w.silent("failures", func() {
		w.between.Set(faults.Rule{Share: 0.2, Status: http.StatusInternalServerError}, faults.Rule{Share: 0.2, Status: http.StatusTooManyRequests, RetryAfter: time.Second},
			faults.Rule{Share: 0.2, Delay: 5 * time.Second})
		w.between.Forget()
		began := time.Now()
		for range 4 {
			w.between.CutWatches(faults.Match{})
			time.Sleep(time.Second)
		}
		if n, most := w.between.Count(faults.Match{}), watches+int(10*time.Since(began).Seconds()); n > most {
			w.t.Errorf("%d requests of a server in trouble, more than %d", n, most)
		}
		w.between.Set()
	})
}
