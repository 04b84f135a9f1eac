package controllers_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	asking "github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/deployment"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/exports"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/status"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
	"github.com/istiod-lite/istiod-lite/pilot/untaint"
)

// planet is the world of reconcilers that read one. It has at most one object of its own, and reads others from the API
// server.
type planet struct {
	server  *apiserver.Server
	path    string               // of the reconciled object
	manager *controllers.Manager // of Gateways
	handle  func([]kinds.Change) // of ConfigMaps

	mu     sync.Mutex
	object *kinds.Object // nil once it is gone
}

func (p *planet) own() *kinds.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.object
}

func (p *planet) gone(*apiserver.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.object = nil
}

// read returns the object of the API server.
func (p *planet) read() *unstructured.Unstructured { return p.server.Object(p.path) }

func (p *planet) Object(k kinds.Key) *kinds.Object {
	if o := p.own(); o != nil && o.Key == k {
		return o
	}
	if k.Kind == kinds.GatewayClass && (p.own() == nil || p.read() != nil) {
		return &kinds.Object{Key: k, Spec: &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: deployment.ControllerName}}}
	}
	return nil
}

func (p *planet) ObjectsOf(k *kinds.Kind) []*kinds.Object {
	if o := p.own(); o != nil && o.Kind == k {
		return []*kinds.Object{o}
	}
	return nil
}

func (*planet) Accepts(string, map[string]string) bool { return true }

func (*planet) Selections() uint64 { return 0 }

func (*planet) Own(progress.Question) progress.Answer {
	return progress.Answer{State: progress.InForce, Generation: 1, Counted: true}
}

func (p *planet) Ask(_ context.Context, q progress.Question) progress.Answer { return p.Own(q) }

func (*planet) Describe(code string) status.Code { return status.Code{ID: code} }

func (p *planet) Found() ([]diag.Diagnostic, bool) {
	if o := p.own(); o != nil {
		return []diag.Diagnostic{{Severity: diag.Error, Code: "X", Object: o.String(), Message: "wrong"}}, true
	}
	return nil, true
}

func (p *planet) Status(of kinds.Key) *derive.Status {
	o := p.own()
	if o == nil || o.Key != of {
		return nil
	}
	current, _, _ := unstructured.NestedMap(p.read().Object, "status")
	return &derive.Status{Of: of, Value: map[string]any{"a": "b"}, Current: current}
}

func (p *planet) Statuses() []*derive.Status {
	return []*derive.Status{p.Status(p.own().Key)}
}

func (*planet) Render(_ context.Context, _ string, g injector.Gateway) ([]map[string]any, error) {
	return []map[string]any{
		{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "front", "namespace": g.Namespace}},
	}, nil
}

func (p *planet) ConfigMaps(handler func([]kinds.Change)) (deployment.ConfigMaps, error) {
	p.handle = handler
	return p, nil
}

func (p *planet) Run(ctx context.Context) error {
	p.handle(nil)
	p.manager.NotifyAll()
	<-ctx.Done()
	return nil
}
func (*planet) Want([]kinds.Key)            {}
func (*planet) Missing() []kinds.Key        { return nil }
func (*planet) Findings() []diag.Diagnostic { return nil }

// manager makes the Manager of one reconciler.
func manager(t *testing.T, client *rest.Config, lease *leader.Lease, r controllers.Reconciler) *controllers.Manager {
	m, err := controllers.NewManager(
		controllers.Options{Client: client, Lease: lease, Logger: quiet}, controllers.New("Row", "NotRead", r, quiet),
	)
	must.Succeed(t, err)
	return m
}

func gatewayRow() row {
	p := &planet{path: "/api/v1/namespaces/edge/services/front"}
	r := row{name: "Gateways", path: p.path, gone: p.gone, but: map[string]outcome{
		"500 for the version": {found: true}, "404 for writes": {found: true},
	}}
	r.done = func(o *unstructured.Unstructured) bool { return o != nil && len(o.GetOwnerReferences()) == 1 }
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		p.server, p.object = s, &kinds.Object{
			Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "edge", Name: "front"}, UID: "1",
			Spec: &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio"}},
		}
		api, err := asking.New(client)
		must.Succeed(t, err)
		p.manager = manager(t, client, lease, deployment.New(deployment.Options{
			Classes: deployment.Classes("istio", deployment.ControllerName), World: p, APIServer: api, Templates: p, Maps: p, Logger: quiet,
		}))
		return p.manager
	}
	return r
}

func classRow() row {
	p := &planet{path: "/apis/gateway.networking.k8s.io/v1/gatewayclasses/istio"}
	unread := outcome{passes: true} // it reads no object
	r := row{
		name: "GatewayClasses", path: p.path, gone: p.gone,
		but: map[string]outcome{"403 for reads": unread, "404 for reads": unread, "500 for reads": unread, "no answer to reads": unread},
	}
	r.done = func(o *unstructured.Unstructured) bool { return o != nil }
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		p.server, p.object = s, &kinds.Object{}
		return manager(t, client, lease, deployment.NewClasses(p, deployment.ControllerName,
			deployment.Classes("istio", deployment.ControllerName)[:1], quiet))
	}
	return r
}

func analysisRow() row {
	p := &planet{path: "/apis/networking.istio.io/v1/namespaces/a/virtualservices/web"}
	r := row{name: "findings", path: p.path, gone: p.gone, but: map[string]outcome{"404 for reads": {}}} // it may be gone
	r.done = func(o *unstructured.Unstructured) bool {
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "validationMessages")
		return len(list) == 1
	}
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		p.server, p.object = s, &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}}
		s.Put(p.path, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": map[string]any{"namespace": "a", "name": "web"},
		}})
		analysis := status.NewAnalysis(p, p, status.NewLimit(0))
		analysis.Analysed()
		return manager(t, client, lease, analysis)
	}
	return r
}

// refused is a planet whose object is unusable, so that it is reconciled at once.
type refused struct{ *planet }

func (r refused) ObjectFindings() []diag.Diagnostic {
	o := r.own()
	if o == nil {
		return nil
	}
	return []diag.Diagnostic{{Code: "Unusable", Object: o.String()}}
}

func (refused) Notify(...reconcile.Request) {}

func distributionRow() row {
	p := &planet{path: "/apis/networking.istio.io/v1/namespaces/a/virtualservices/web"}
	r := row{name: "conditions", path: p.path, gone: p.gone, but: map[string]outcome{"404 for reads": {}}} // it may be gone
	r.done = func(o *unstructured.Unstructured) bool {
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		return len(list) == 1
	}
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		p.server, p.object = s, &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}, Generation: 1}
		s.Put(p.path, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
			"metadata": map[string]any{"namespace": "a", "name": "web", "generation": int64(1)},
		}})
		return manager(t, client, lease, status.NewDistribution(status.DistributionOptions{
			World: p, Progress: p, Host: refused{p}, Limit: status.NewLimit(0),
		}))
	}
	return r
}

func derivedRow() row {
	p := &planet{path: "/apis/networking.k8s.io/v1/namespaces/a/ingresses/web"}
	unread := outcome{passes: true} // it reads no object
	r := row{
		name: "statuses of stages", path: p.path, gone: p.gone,
		but: map[string]outcome{"403 for reads": unread, "404 for reads": unread, "500 for reads": unread, "no answer to reads": unread},
	}
	r.done = func(o *unstructured.Unstructured) bool {
		text, _, _ := unstructured.NestedString(o.Object, "status", "a")
		return text == "b"
	}
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		p.server, p.object = s, &kinds.Object{Key: kinds.Key{Kind: kinds.Ingress, Namespace: "a", Name: "web"}}
		s.Put(p.path, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"namespace": "a", "name": "web"},
		}})
		return manager(t, client, lease, status.NewDerived(p, status.NewLimit(0), nil))
	}
	return r
}

func untaintRow() row {
	r := row{name: "taints", path: "/api/v1/nodes/one"}
	r.done = func(o *unstructured.Unstructured) bool {
		list, _, _ := unstructured.NestedSlice(o.Object, "spec", "taints")
		return len(list) == 0
	}
	r.gone = func(s *apiserver.Server) { s.Drop(r.path) }
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		s.Put(r.path, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "one"},
			"spec": map[string]any{"taints": []any{map[string]any{"key": "wait"}}},
		}})
		s.Put("/api/v1/namespaces/cni/pods/x", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": "one"},
			"metadata": map[string]any{"namespace": "cni", "name": "x", "labels": map[string]any{untaint.Label: untaint.LabelValue}},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		}})
		return manager(t, client, lease, untaint.New(untaint.Options{Namespace: "cni", Taint: "wait", Logger: quiet}))
	}
	return r
}

func bundleRow() row {
	text := "roots"
	r := row{
		name: "ClusterTrustBundles", path: "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/istio.io:istiod-ca:root-cert",
		but: map[string]outcome{"404 for writes": {found: true}}, // the API is not served
	}
	r.done = func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		got, _, _ := unstructured.NestedString(o.Object, "spec", "trustBundle")
		signer, _, _ := unstructured.NestedString(o.Object, "spec", "signerName")
		return got == text && signer == "istio.io/istiod-ca"
	}
	var gone atomic.Bool
	r.gone = func(*apiserver.Server) { gone.Store(true) }
	r.build = func(t *testing.T, _ *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		gone.Store(false)
		p, err := trust.New(trust.Options{
			Client: client, Lease: lease, World: namespaces{}, Logger: quiet,
			Bundle: names.TrustBundle(""),
			Maps: []trust.Map{{Name: "roots", Key: "pem", Existing: true, Text: func() []byte {
				if gone.Load() {
					return nil
				}
				return []byte(text)
			}}},
		})
		must.Succeed(t, err)
		return p
	}
	return r
}

// exporting is a planet with a mesh configuration.
type exporting struct{ *planet }

func (exporting) Mesh() *mesh.Config { return mesh.Default() }

func exportRow() row {
	p := &planet{path: "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/a/serviceexports/web"}
	r := row{name: "ServiceExports", path: p.path, gone: p.gone}
	r.done = func(o *unstructured.Unstructured) bool { return o != nil && len(o.GetOwnerReferences()) == 1 }
	r.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		p.server, p.object = s, &kinds.Object{
			Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "web"}, UID: "1", Spec: &corev1.Service{},
		}
		e, err := exports.New(exports.Options{
			Client: client, Lease: lease, Domain: "cluster.local", World: exporting{p}, Logger: quiet,
		})
		must.Succeed(t, err)
		return e
	}
	return r
}
