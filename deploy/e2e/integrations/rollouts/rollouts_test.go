package rollouts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestSample rolls out a version by each form of the analysis. Each time, the sidecar of the client is held back during
// the first step. Then it rolls out a version by managed routes.
func TestSample(t *testing.T) {
	w := start(t)
	w.apply("web.yaml", "argoproj/rollouts-demo:blue", "argoproj/rollouts-demo:v0", "{duration: 5m}", "{duration: 1s}",
		// before the Services change, the test looks at the requests
		"      - setWeight: 100\n      - analysis: *inForce\n", "      - setWeight: 100\n      - analysis: *inForce\n      - pause: {}\n")
	w.apply("analysis-job.yaml")
	w.Write(client)
	w.Ready("shop", "client")
	suite.Eventually(t, "the first version is there", func() bool {
		return w.rollout().phase == "Healthy" && len(w.Pods("shop", "app=web")) == 2 && w.reach(1)["v0"] == 1
	})
	for i, form := range []string{"job", "web"} {
		t.Run(form, func(t *testing.T) { w.roll(t, form, fmt.Sprint("v", i+1)) })
	}
	t.Run("managed routes", w.manage)
	if !t.Failed() {
		must.Succeed(t, compat.CheckProject("Argo Rollouts", binaries.Version("argo-rollouts"),
			"its controller sets weights of a VirtualService, routes by a header and mirrors; analyses wait by a Job and by the page inforce",
			"works"))
	}
}

// manage rolls out a version with a route for a header, and then a mirror. Both are new routes of the VirtualService.
func (w *world) manage(t *testing.T) {
	w.patch(rollouts, "web", `[
		{"op": "add", "path": "/spec/strategy/canary/trafficRouting/managedRoutes", "value": [{"name": "by-header"}, {"name": "mirrored"}]},
		{"op": "replace", "path": "/spec/strategy/canary/steps", "value": [
			{"setCanaryScale": {"replicas": 1}},
			{"setHeaderRoute": {"name": "by-header", "match": [{"headerName": "x-version", "headerValue": {"exact": "new"}}]}},
			{"pause": {}},
			{"setHeaderRoute": {"name": "by-header"}},
			{"setMirrorRoute": {"name": "mirrored", "percentage": 100, "match": [{"method": {"exact": "GET"}, "path": {"prefix": "/"}}]}},
			{"pause": {}},
			{"setMirrorRoute": {"name": "mirrored"}}
		]},
		{"op": "add", "path": "/spec/template/metadata/annotations", "value": {"sidecar.istio.io/statsInclusionPrefixes": "cluster.inbound"}},
		{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "argoproj/rollouts-demo:v3"}]`)
	const header = "--header=x-version:new"
	suite.Eventually(t, "the route for the header is in force", func() bool {
		return w.rollout().step == 2 && w.reach(1, header)["v3"] == 1
	})
	w.onlyReaches(t, "v3", header)
	w.onlyReaches(t, "v2", "--header=x-version:old")
	w.onlyReaches(t, "v2")

	w.promote()
	suite.Eventually(t, "the mirror is in force, and the route for the header is not", func() bool {
		before := w.passedOn("v3")
		return w.rollout().step == 5 && w.reach(1, header)["v2"] == 1 && w.passedOn("v3") == before+1
	})
	before := w.passedOn("v3")
	w.onlyReaches(t, "v2")
	suite.Eventually(t, "all requests were mirrored", func() bool { return w.passedOn("v3") == before+200 })

	w.promote()
	suite.Eventually(t, "the new version is stable", func() bool {
		return w.rollout().phase == "Healthy" && w.reach(20)["v3"] == 20
	})
	routes, _, err := unstructured.NestedSlice(w.get(virtualServices, "web").Object, "spec", "http")
	if err != nil || len(routes) != 1 {
		t.Errorf("routes at the end: %v, %v", routes, err)
	}
}

// roll rolls out a version.
func (w *world) roll(t *testing.T, form, version string) {
	w.apply("analysis-" + form + ".yaml")
	if form == "web" {
		w.writeToken()
	}
	before := w.rollout()
	client := w.Pods("shop", "app=client")[0].Name
	hold := func(s syscall.Signal) { must.Succeed(t, w.Node.Signal("shop", client, "istio-proxy", s)) }
	t.Cleanup(func() { hold(syscall.SIGCONT) })
	seen := w.watchWeights(t)
	hold(syscall.SIGSTOP)
	w.patch(rollouts, "web", `[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "argoproj/rollouts-demo:`+
		version+`"}]`)

	// The step does not end while a proxy does not have the weights.
	suite.Eventually(t, "an analysis asks about the first weight", func() bool {
		return w.weight() == 10 && w.asked(w.analysis(before.revision+1, 1))
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if now, weight := w.rollout(), w.weight(); now.step != 1 || weight != 10 {
			t.Fatalf("step %d sets weight %d while a proxy is held back", now.step, weight)
		}
	}
	if run := w.analysis(before.revision+1, 1); run.phase != "Running" {
		t.Fatalf("the analysis is %s while a proxy is held back: %v", run.phase, run.values)
	}
	hold(syscall.SIGCONT)

	suite.Eventually(t, "all weights are in force", func() bool {
		now := w.rollout()
		if now.phase == "Degraded" {
			t.Fatalf("the rollout was aborted: %s", now.message)
		}
		return now.step == 8
	})
	w.onlyReaches(t, version)
	if weights := seen(); !slices.Equal(weights, []int64{10, 50, 100}) {
		t.Errorf("weights %v", weights)
	}
	for _, step := range []int{1, 4, 7} {
		run := w.analysis(before.revision+1, step)
		if run.phase != "Successful" || form == "web" && (len(run.values) == 0 || run.values[len(run.values)-1] != `"in force"`) {
			t.Errorf("the analysis of step %d is %s, with %v", step, run.phase, run.values)
		}
	}
	w.promote()
	suite.Eventually(t, "the new version is stable", func() bool { return w.rollout().phase == "Healthy" && w.weight() == 0 })
}

// asked reports whether the first question of an analysis was answered, and did not end it.
func (w *world) asked(run analysis) bool {
	return run.phase == "Running" && (len(run.values) > 1 || len(w.Pods("shop", "job-name")) > 0 && len(run.values) == 0 && run.measured)
}

// onlyReaches sends requests with arguments of the client, and fails if one does not reach a version.
func (w *world) onlyReaches(t *testing.T, version string, args ...string) {
	t.Helper()
	const requests = 200
	if reached := w.reach(requests, args...); reached[version] != requests {
		t.Errorf("of %d requests: %v", requests, reached)
	}
}

// reach sends requests from the client, with arguments of its own, and counts the answers by version.
func (w *world) reach(requests int, args ...string) map[string]int {
	w.t.Helper()
	version := map[string]string{}
	for _, p := range w.Pods("shop", "app=web") {
		for _, c := range p.Spec.Containers {
			if c.Name == "web" {
				_, version[p.Name], _ = strings.Cut(c.Image, ":")
			}
		}
	}
	command := append([]string{"client", fmt.Sprint("--count=", requests), "http://web.shop/"}, args...)
	out, err := w.Exec("shop", "client", command...)
	if err != nil {
		w.t.Log(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(out) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "Hostname="); ok {
			counts[version[name]]++
		}
	}
	return counts
}

// passedOn returns how many requests the sidecar of a version has passed on.
func (w *world) passedOn(version string) (requests int) {
	w.t.Helper()
	for _, p := range w.Pods("shop", "app=web") {
		if !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return strings.HasSuffix(c.Image, ":"+version) }) {
			continue
		}
		out, err := w.Exec("shop", "client", "client", "http://"+p.Status.PodIP+":15020/stats/prometheus")
		must.Succeed(w.t, err)
		for line := range strings.Lines(out) {
			if _, count, ok := strings.Cut(line, `envoy_cluster_upstream_rq_completed{cluster_name="inbound|8080||"} `); ok {
				n, err := strconv.Atoi(strings.TrimSpace(count))
				must.Succeed(w.t, err)
				requests += n
			}
		}
	}
	return requests
}

// writeToken writes the Secret that analysis-web.yaml describes.
func (w *world) writeToken() {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"istio-ca"}, ExpirationSeconds: ptr.To(int64(86400))},
	}
	made, err := w.Client().CoreV1().ServiceAccounts("shop").CreateToken(w.ctx, "in-force", request, metav1.CreateOptions{})
	must.Succeed(w.t, err)
	_, err = w.Client().CoreV1().Secrets("shop").Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "in-force"},
		StringData: map[string]string{"token": made.Status.Token}}, metav1.CreateOptions{})
	must.Succeed(w.t, err)
}

// watchWeights returns a function that returns the weights of the canary so far.
func (w *world) watchWeights(t *testing.T) func() []int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	watch, err := w.Dynamic().Resource(virtualServices).Namespace("shop").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=web"})
	must.Succeed(t, err)
	t.Cleanup(func() { cancel(); watch.Stop() })
	var list []int64
	return func() []int64 {
		for {
			select {
			case e, ok := <-watch.ResultChan():
				if !ok {
					t.Fatal("the watch has ended")
				}
				if weight := weightOf(e.Object); weight > 0 && (len(list) == 0 || list[len(list)-1] != weight) {
					list = append(list, weight)
				}
			case <-time.After(200 * time.Millisecond):
				return list
			}
		}
	}
}
