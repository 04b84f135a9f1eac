package faults

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestProxy tests one proxy in front of a real API server with all faults.
func TestProxy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir()})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	p, err := Start(ctx, c, "")
	must.Succeed(t, err)
	t.Cleanup(p.Close)
	s := &scene{Proxy: p, cluster: c, client: clientOf(t, p.Access(c.Admin()))}
	for _, part := range []struct {
		name string
		test func(context.Context, *testing.T, *scene)
	}{
		{"counts", testCounts},
		{"answers", testAnswers},
		{"delays", testDelays},
		{"cuts watches", testCuts},
		{"refuses", testRefuses},
		{"loses", testLoses},
	} {
		t.Run(part.name, func(t *testing.T) {
			defer p.Set()
			p.Forget()
			part.test(ctx, t, s)
		})
	}
}

type scene struct {
	*Proxy
	cluster *cluster.Cluster
	client  kubernetes.Interface
}

func clientOf(t *testing.T, a cluster.Access) kubernetes.Interface {
	t.Helper()
	config := a.Config()
	config.UserAgent = "tester"
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	return client
}

func testCounts(ctx context.Context, t *testing.T, s *scene) {
	access, err := s.cluster.ServiceAccount(ctx, "istio-system", "istiod")
	must.Succeed(t, err)
	config := s.Access(access).Config()
	config.UserAgent = "pilot"
	pilot := kubernetes.NewForConfigOrDie(config)
	if _, err := pilot.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the proxy changed who asks: %v, want forbidden", err)
	}
	if _, err := s.client.CoreV1().ConfigMaps("default").Create(ctx, configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{Verb: "list", Resource: "pods", Path: "/api/v1/pods", UserAgent: "pilot", Identity: "system:serviceaccount:istio-system:istiod",
			Code: http.StatusForbidden},
		{Verb: "create", Resource: "configmaps", Namespace: "default", Path: "/api/v1/namespaces/default/configmaps", UserAgent: "tester",
			Code: http.StatusCreated},
	}
	got := s.Requests(Match{})
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Request{}, "Time", "Accept", "Query")); diff != "" {
		t.Error(diff)
	}
	for _, m := range []Match{{Writes: true}, {UserAgent: "pilot"}, {Identity: "system:serviceaccount:istio-system:istiod"},
		{Verbs: []string{"get", "list"}, Resource: "pods"}} {
		if n := s.Count(m); n != 1 {
			t.Errorf("%+v matches %d requests, want 1", m, n)
		}
	}
}

func testAnswers(ctx context.Context, t *testing.T, s *scene) {
	s.Set(Rule{Match: Match{Verbs: []string{"get"}, Resource: "configmaps"}, Share: 0.5, Status: http.StatusTooManyRequests})
	var busy int
	for range 10 {
		_, err := s.client.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		switch {
		case apierrors.IsTooManyRequests(err):
			busy++
		case err != nil:
			t.Error(err)
		}
	}
	if busy != 5 {
		t.Errorf("%d of 10 were refused, want 5", busy)
	}
	// A client that must wait tries again by itself.
	s.Forget()
	s.Set(Rule{Match: Match{Resource: "configmaps"}, Share: 0.5, Status: http.StatusTooManyRequests, RetryAfter: time.Second})
	for range 2 {
		if _, err := s.client.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if n := s.Count(Match{}); n != 3 {
		t.Errorf("two requests, one of which was to be repeated, came as %d", n)
	}
	s.Set(Rule{Status: http.StatusInternalServerError})
	if _, err := s.client.CoreV1().Services("").List(ctx, metav1.ListOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("err = %v, want an internal error", err)
	}
}

func testDelays(ctx context.Context, t *testing.T, s *scene) {
	s.Set(Rule{Match: Match{Verbs: []string{"list", "watch"}, Resource: "pods"}, Delay: time.Hour})
	get := func(list func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return list(ctx)
	}
	err := get(func(ctx context.Context) error {
		_, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("delayed list: %v, want no answer", err)
	}
	if _, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("another resource: %v", err)
	}
	const delay = 200 * time.Millisecond
	s.Set(Rule{Match: Match{Resource: "pods"}, Delay: delay})
	begun := time.Now()
	if _, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil || time.Since(begun) < delay {
		t.Errorf("delayed list: %v after %s", err, time.Since(begun))
	}
}

func testCuts(ctx context.Context, t *testing.T, s *scene) {
	w, err := s.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	if e := <-w.ResultChan(); e.Object == nil {
		t.Fatal("the watch gave nothing")
	}
	if n := s.CutWatches(Match{Resource: "pods"}); n != 0 {
		t.Errorf("%d watches of pods were cut, want none", n)
	}
	if n := s.Watches(Match{Resource: "configmaps"}); n != 1 {
		t.Errorf("%d watches are open, want 1", n)
	}
	if n := s.CutWatches(Match{}); n != 1 {
		t.Errorf("%d watches were cut, want 1", n)
	}
	for range w.ResultChan() { // until it is closed
	}
	s.CutWatchesEvery(20 * time.Millisecond)
	defer s.CutWatchesEvery(0)
	for range 3 {
		w, err := s.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue // cut before it began
		}
		for range w.ResultChan() {
		}
	}
	if n := s.Count(Match{Verbs: []string{"watch"}}); n < 4 {
		t.Errorf("%d watches were counted, want 4 at least", n)
	}
}

func testRefuses(ctx context.Context, t *testing.T, s *scene) {
	w, err := s.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	s.Refuse()
	for range w.ResultChan() { // until it is closed
	}
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // clients retry for a long time
	defer cancel()
	if _, err := s.client.CoreV1().Nodes().List(brief, metav1.ListOptions{}); err == nil {
		t.Error("a network that refuses let a request pass")
	}
	s.Heal()
	if _, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("healed: %v", err)
	}
}

func testLoses(ctx context.Context, t *testing.T, s *scene) {
	w, err := s.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{LabelSelector: "lost=yes"})
	must.Succeed(t, err)
	defer w.Stop()
	s.Lose()
	lost := configMap("lost")
	lost.Labels = map[string]string{"lost": "yes"}
	if _, err := s.cluster.Client().CoreV1().ConfigMaps("default").Create(ctx, lost, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = kubernetes.NewForConfigOrDie(s.Access(s.cluster.Admin()).Config()).CoreV1().Nodes().List(fresh, metav1.ListOptions{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("new connection: %v, want no answer", err)
	}
	select {
	case e := <-w.ResultChan():
		t.Errorf("lost network let %v pass", e)
	default:
	}
	s.Heal()
	if e := <-w.ResultChan(); e.Object == nil {
		t.Error("the watch did not outlive the loss")
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		method, url string
		want        Request
	}{
		{"GET", "/api/v1/namespaces", Request{Verb: "list", Resource: "namespaces"}},
		{"GET", "/api/v1/namespaces/a", Request{Verb: "get", Resource: "namespaces", Namespace: "a", Name: "a"}},
		{"PUT", "/api/v1/namespaces/a/finalize", Request{Verb: "update", Resource: "namespaces/finalize", Namespace: "a", Name: "a"}},
		{"PATCH", "/api/v1/namespaces/a/pods/p/status", Request{Verb: "patch", Resource: "pods/status", Namespace: "a", Name: "p"}},
		{"DELETE", "/api/v1/namespaces/a/pods", Request{Verb: "deletecollection", Resource: "pods", Namespace: "a"}},
		{"DELETE", "/api/v1/namespaces/a/pods/p", Request{Verb: "delete", Resource: "pods", Namespace: "a", Name: "p"}},
		{"GET", "/apis/apps/v1/deployments?watch=true&sendInitialEvents=true",
			Request{Verb: "watch", Initial: true, Group: "apps", Resource: "deployments"}},
		{"GET", "/apis/networking.istio.io/v1", Request{Verb: "get"}},
		{"GET", "/api/v1", Request{Verb: "get"}},
		{"GET", "/readyz", Request{Verb: "get"}},
	} {
		r, err := http.NewRequest(c.method, "https://host"+c.url, nil)
		must.Succeed(t, err)
		if diff := cmp.Diff(c.want, parse(r), cmpopts.IgnoreFields(Request{}, "Time", "Path", "Query", "Accept", "UserAgent")); diff != "" {
			t.Errorf("%s %s: %s", c.method, c.url, diff)
		}
	}
}

func TestRequestsThatWrite(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want bool
	}{
		{Request{Verb: "create", Resource: "leases", Group: "coordination.k8s.io"}, true},
		{Request{Verb: "patch", Resource: "workloadentries/status"}, true},
		{Request{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, false},
		{Request{Verb: "watch", Resource: "pods"}, false},
	} {
		if got := c.r.Writes(); got != c.want {
			t.Errorf("%+v writes: %t, want %t", c.r, got, c.want)
		}
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
