package untaint_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/untaint"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const taint = "cni.istio.io/not-ready"

func node(s *apiserver.Server, name string, taints ...string) {
	list := []any{}
	for _, key := range taints {
		list = append(list, map[string]any{"key": key, "effect": "NoSchedule"})
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"podCIDR": "10.0.0.0/24", "taints": list},
	}}
	s.Put("/api/v1/nodes/"+name, u)
}

func pod(s *apiserver.Server, namespace, app, node, ready string) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": node},
		"metadata": map[string]any{"namespace": namespace, "name": app + "-" + node, "labels": map[string]any{"k8s-app": app}},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Initialized", "status": "True"}, map[string]any{"type": "Ready", "status": ready},
		}},
	}}
	s.Put("/api/v1/namespaces/"+namespace+"/pods/"+app+"-"+node, u)
}

// left returns the keys of a node's taints.
func left(t *testing.T, s *apiserver.Server, name string) string {
	text, err := json.Marshal(s.Object("/api/v1/nodes/" + name).Object["spec"])
	must.Succeed(t, err)
	var spec struct {
		PodCIDR string
		Taints  []struct{ Key string }
	}
	must.Succeed(t, json.Unmarshal(text, &spec))
	if spec.PodCIDR == "" {
		t.Errorf("node %s has lost a field: %s", name, text)
	}
	var keys []string
	for _, x := range spec.Taints {
		keys = append(keys, x.Key)
	}
	return strings.Join(keys, " ")
}

func TestReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiserver.Server{Streamed: kinds.All()}
		for _, name := range []string{"unready", "elsewhere", "other", "bare", "ready"} {
			node(s, name, "a", taint, "b")
		}
		pod(s, "kube-system", "istio-cni-node", "unready", "False")
		pod(s, "default", "istio-cni-node", "elsewhere", "True")
		pod(s, "kube-system", "another", "other", "True")
		pod(s, "kube-system", "istio-cni-node", "ready", "True")
		pod(s, "kube-system", "istio-cni-node", "", "True") // without a node
		pod(s, "kube-system", "istio-cni-node", "late", "True")
		m, err := controllers.NewManager(
			controllers.Options{Client: s.Config(), Logger: slog.New(slog.DiscardHandler)},
			controllers.New("Node", "NodesNotRead", untaint.New(untaint.Options{
				Namespace: "kube-system", Taint: taint, Logger: slog.New(slog.DiscardHandler),
			}), slog.New(slog.DiscardHandler)),
		)
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.Run(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
		expect := func(what string, writes int, nodes map[string]string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for name, want := range nodes {
				if got := left(t, s, name); got != want {
					t.Errorf("%s: node %s has the taints %q, want %q", what, name, got, want)
				}
			}
			if got := s.Writes(); len(got) != writes {
				t.Errorf("%s: %v", what, got)
			}
			if list := m.Findings(); len(list) > 0 {
				t.Errorf("%s: %v", what, list)
			}
		}
		whole := "a " + taint + " b"
		expect("at first", 1, map[string]string{"unready": whole, "elsewhere": whole, "other": whole, "bare": whole, "ready": "a b"})
		pod(s, "kube-system", "istio-cni-node", "unready", "True")
		node(s, "late", taint)
		expect("a pod becomes ready, and a node comes after its pod", 2, map[string]string{"unready": "a b", "late": "", "bare": whole})

		// Another client adds a taint between the read and the write.
		var raced atomic.Bool
		s.Set(func() {
			s.Intercept = func(r *http.Request) error {
				if r.Method == http.MethodPatch && !raced.Swap(true) {
					node(s, "bare", "a", taint, "b", "drain")
				}
				return nil
			}
		})
		pod(s, "kube-system", "istio-cni-node", "bare", "True")
		expect("another write at the same time", 2, map[string]string{"bare": "a b drain"})
	})
}
