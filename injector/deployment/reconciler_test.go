package deployment_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	asking "github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/deployment"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// stage is an API server, and a Reconciler of one Gateway.
type stage struct {
	*testing.T
	*apiserver.Server
	controller *controllers.Controller
	manager    *controllers.Manager
	front      *kinds.Object

	mu     sync.Mutex
	world  world
	handle func([]kinds.Change) // of the source of ConfigMaps
	maps   []kinds.Change       // what the source has read
	wanted []kinds.Key
	absent bool // the API server has none of the wanted ConfigMaps
}

func (s *stage) Object(k kinds.Key) *kinds.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.Object(k)
}

func (s *stage) ObjectsOf(k *kinds.Kind) []*kinds.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.ObjectsOf(k)
}

// Render makes a ServiceAccount and a Service, whose label is that of the Gateway, and an autoscaler.
func (*stage) Render(_ context.Context, _ string, g injector.Gateway) ([]map[string]any, error) {
	var list []map[string]any
	for kind, version := range map[string]string{"ServiceAccount": "v1", "Service": "v1", "HorizontalPodAutoscaler": "autoscaling/v2"} {
		list = append(list, map[string]any{
			"apiVersion": version, "kind": kind,
			"metadata": map[string]any{"name": g.DeploymentName, "namespace": g.Namespace, "labels": map[string]any{"team": g.Labels["team"]}},
		})
	}
	return list, nil
}

// ConfigMaps returns the source of ConfigMaps.
func (s *stage) ConfigMaps(handler func([]kinds.Change)) (deployment.ConfigMaps, error) {
	s.handle = handler
	return s, nil
}

// Run is that of the source of ConfigMaps.
func (s *stage) Run(ctx context.Context) error {
	s.read(s.maps...)
	<-ctx.Done()
	return nil
}

func (s *stage) Want(keys []kinds.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = keys
}

func (s *stage) Missing() []kinds.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent {
		return s.wanted
	}
	return nil
}

func (*stage) Findings() []diag.Diagnostic { return nil }

// read has the source read changes.
func (s *stage) read(changes ...kinds.Change) {
	s.handle(changes)
	s.controller.NotifyAll()
}

const (
	servicePath = "/api/v1/namespaces/edge/services/front-istio"
	scalerPath  = "/apis/autoscaling/v2/namespaces/edge/horizontalpodautoscalers/front-istio"
)

// onStage runs a test with a Reconciler that runs, and a Gateway.
func onStage(t *testing.T, spec string, test func(*stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, Server: &apiserver.Server{}, front: gateway(t, map[string]string{"team": "a"}, spec)}
		s.world = world{s.front.Key: s.front}
		api, err := asking.New(&rest.Config{Host: "http://api", Transport: s.Server})
		must.Succeed(t, err)
		r := deployment.New(deployment.Options{
			Namespace: "istio-system", Classes: deployment.Classes("istio", deployment.ControllerName), World: s,
			APIServer: api, Templates: s, Logger: slog.New(slog.DiscardHandler),
			Maps: s,
		})
		s.controller = controllers.New("Gateway", "GatewayObjectsNotRead", r, slog.New(slog.DiscardHandler))
		s.manager, err = controllers.NewManager(controllers.Options{Client: s.Config(), Logger: slog.New(slog.DiscardHandler)}, s.controller)
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.manager.Run(ctx)
		}()
		test(s)
		cancel()
		<-ended
	})
}

// change changes the Gateway, and has what follows reconciled.
func (s *stage) change(label string) {
	s.mu.Lock()
	o := *s.front
	o.Labels = map[string]string{"team": label}
	s.world[o.Key] = &o
	s.mu.Unlock()
	list, _ := deployment.Affected([]kinds.Change{{Key: o.Key, Object: &o}})
	s.controller.Notify(list...)
}

// pass lets time pass, and returns what is written meanwhile.
func (s *stage) pass(d time.Duration) (writes []string) {
	time.Sleep(d)
	synctest.Wait()
	for _, w := range s.Writes() {
		writes = append(writes, w.String())
	}
	return writes
}

// team returns the label of the Service; empty if there is none.
func (s *stage) team() string {
	if u := s.Server.Object(servicePath); u != nil {
		return u.GetLabels()["team"]
	}
	return ""
}

const plainSpec = "{gatewayClassName: istio}"

// TestVersionIsAskedForWithBackoff checks that an API server which does not tell its version is asked again, with
// longer pauses, however many changes there are.
func TestVersionIsAskedForWithBackoff(t *testing.T) {
	onStage(t, plainSpec, func(s *stage) {
		asked, broken := 0, true
		s.Set(func() {
			s.Intercept = func(r *http.Request) error {
				if r.URL.Path != "/version" {
					return nil
				}
				if asked++; broken {
					return apierrors.NewInternalError(errors.New("503"))
				}
				return nil
			}
		})
		for i := range 1000 { // 100 s
			s.change(fmt.Sprint(i))
			s.pass(100 * time.Millisecond)
		}
		if asked < 5 || asked > 8 {
			t.Errorf("the version was asked for %d times", asked)
		}
		if list := s.manager.Findings(); len(list) != 1 || list[0].Code != "GatewayNotDeployed" ||
			!strings.Contains(list[0].Message, "the version of the API server") {
			t.Errorf("findings %v", list)
		}
		s.Set(func() { broken = false })
		s.pass(time.Minute)
		before := asked
		s.pass(time.Hour)
		if asked != before || s.team() != "999" || len(s.manager.Findings()) > 0 {
			t.Errorf("asked %d times more; team %s, findings %v", asked-before, s.team(), s.manager.Findings())
		}
	})
}

// TestNoHotLoop: what another client undoes at once is written again within five seconds, at most once a second. A
// status, and fields that nothing here writes, may change.
func TestNoHotLoop(t *testing.T) {
	onStage(t, plainSpec, func(s *stage) {
		if list := s.pass(time.Second); len(list) != 2 || s.team() != "a" {
			t.Fatalf("at first %v, team %s", list, s.team())
		}
		for i := range 600 {
			u := s.Server.Object(servicePath)
			u.SetLabels(map[string]string{"gateway.istio.io/managed": u.GetLabels()["gateway.istio.io/managed"], "team": fmt.Sprint(i)})
			s.Put(servicePath, u)
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(s.pass(0)); n < 12 || n > 20 {
			t.Errorf("%d writes in a minute", n)
		}
		s.pass(5 * time.Second)
		if s.team() != "a" {
			t.Errorf("team %s", s.team())
		}
		s.pass(time.Minute)
		u := s.Server.Object(servicePath)
		u.Object["status"] = map[string]any{"loadBalancer": "x"}
		u.SetGeneration(7)
		s.Put(servicePath, u)
		if list := s.pass(time.Minute); len(list) > 0 {
			t.Errorf("after a change of the status: %v", list)
		}
		s.Drop(servicePath)
		s.pass(time.Second)
		if s.team() != "a" {
			t.Error("a Service that was deleted is not there")
		}
	})
}

// TestParametersAreFollowed: a ConfigMap that a Gateway names is read, and what it asks for goes when it does not ask
// for it any more. Nothing is written before it has been read. One that does not exist is a finding.
func TestParametersAreFollowed(t *testing.T) {
	onStage(t, `{gatewayClassName: istio, infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: p}}}`, func(s *stage) {
		if list := s.pass(time.Minute); len(list) > 0 || len(s.wanted) != 1 || s.wanted[0].Name != "p" {
			t.Errorf("written %v, wanted %v", list, s.wanted)
		}
		for _, absent := range []bool{true, false} {
			s.mu.Lock()
			s.absent = absent
			s.mu.Unlock()
			s.pass(2 * time.Minute)
			if got := strings.Contains(fmt.Sprint(s.manager.Findings()), "p does not exist"); got != absent {
				t.Errorf("absent %v: findings %v", absent, s.manager.Findings())
			}
		}
		for _, c := range []struct {
			data map[string]string
			want bool
		}{{map[string]string{"horizontalPodAutoscaler": "spec: {maxReplicas: 7}"}, true}, {nil, false}} {
			key := kinds.Key{Kind: kinds.ConfigMap, Namespace: "edge", Name: "p"}
			s.read(kinds.Change{Key: key, Object: &kinds.Object{Key: key, Spec: &corev1.ConfigMap{Data: c.data}}})
			s.pass(5 * time.Second)
			if got := s.Server.Object(scalerPath) != nil; got != c.want || s.team() != "a" {
				t.Errorf("%v: an autoscaler: %v, team %q", c.data, got, s.team())
			}
		}
		s.mu.Lock()
		delete(s.world, s.front.Key)
		s.mu.Unlock()
		list, _ := deployment.Affected([]kinds.Change{{Key: s.front.Key}})
		s.controller.Notify(list...)
		s.pass(5 * time.Second)
		if len(s.wanted) > 0 {
			t.Errorf("%v is wanted of a Gateway that is gone", s.wanted)
		}
	})
}

// TestForeignObjectsStay: an object of that name without the label is left alone, holds up no other, and is taken over
// once it has the label.
func TestForeignObjectsStay(t *testing.T) {
	onStage(t, plainSpec, func(s *stage) {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "edge", "name": "front-istio"},
		}}
		s.Put(servicePath, u)
		if list := s.pass(time.Minute); len(list) != 1 || s.team() != "" {
			t.Errorf("written %v, team %s", list, s.team())
		}
		if list := s.manager.Findings(); len(list) != 1 ||
			!strings.Contains(list[0].Message, "Service edge/front-istio: it is not this controller's") {
			t.Errorf("findings %v", list)
		}
		u.SetLabels(map[string]string{"gateway.istio.io/managed": "istio.io-gateway-controller"})
		s.Put(servicePath, u)
		s.pass(5 * time.Second)
		if list := s.manager.Findings(); len(list) != 0 || s.team() != "a" {
			t.Errorf("taken over: team %s, findings %v", s.team(), list)
		}
	})
}
