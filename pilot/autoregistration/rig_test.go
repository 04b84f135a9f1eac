package autoregistration

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "istio.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// world is the configuration that controllers read, and a store that can fail. The entries come from the store.
type world struct {
	*Memory
	mu      sync.Mutex
	objects map[kinds.Key]*kinds.Object
	calls   int
	batches int
	fail    func(what string) error // optional
}

func newWorld(groups ...*kinds.Object) *world {
	w := &world{objects: map[kinds.Key]*kinds.Object{}}
	w.Memory = NewMemory(w.take)
	for _, g := range groups {
		w.objects[g.Key] = g
	}
	return w
}

func (w *world) take(changes []kinds.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches++
	for _, c := range changes {
		if c.Object == nil {
			delete(w.objects, c.Key)
		} else {
			w.objects[c.Key] = c.Object
		}
	}
}

// count reads a counter after all pending goroutines have run.
func (w *world) count(n *int) int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return *n
}

func (w *world) Object(k kinds.Key) *kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.objects[k]
}

func (w *world) ObjectsOf(kind *kinds.Kind) []*kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*kinds.Object
	for _, o := range w.objects {
		if o.Kind == kind {
			out = append(out, o)
		}
	}
	return out
}

func (w *world) failing(f func(string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = f
}

func (w *world) try(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if w.fail != nil {
		return w.fail(what)
	}
	return nil
}

func (w *world) Get(ctx context.Context, k types.NamespacedName) (*Entry, error) {
	if err := w.try("get"); err != nil {
		return nil, err
	}
	return w.Memory.Get(ctx, k)
}

func (w *world) Create(ctx context.Context, e *Entry) error {
	if err := w.try("create"); err != nil {
		return err
	}
	return w.Memory.Create(ctx, e)
}

func (w *world) Update(ctx context.Context, e *Entry) error {
	if err := w.try("update"); err != nil {
		return err
	}
	return w.Memory.Update(ctx, e)
}

func (w *world) UpdateStatus(ctx context.Context, e *Entry) error {
	if err := w.try("status"); err != nil {
		return err
	}
	return w.Memory.UpdateStatus(ctx, e)
}

func (w *world) Delete(ctx context.Context, e *Entry) error {
	if err := w.try("delete"); err != nil {
		return err
	}
	return w.Memory.Delete(ctx, e)
}

// replica is a running controller.
type replica struct {
	*Controller
	t    *testing.T
	reg  *prometheus.Registry
	stop func()
}

func (w *world) start(t *testing.T, instance string, edit ...func(*Options)) *replica {
	t.Helper()
	reg := prometheus.NewRegistry()
	o := Options{Store: w, Instance: instance, World: w, Metrics: reg}
	for _, e := range edit {
		e(&o)
	}
	r := &replica{Controller: New(o), t: t, reg: reg}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	r.stop = func() { cancel(); <-ended }
	t.Cleanup(r.stop)
	return r
}

func (r *replica) metrics(want string) {
	r.t.Helper()
	families, err := r.reg.Gather()
	must.Succeed(r.t, err)
	var got []string
	for _, f := range families {
		if v := f.Metric[0].GetCounter().GetValue(); v != 0 {
			got = append(got, fmt.Sprintf("%s=%v", strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "auto_registration_"), "_total"), v))
		}
	}
	if s := strings.Join(got, " "); s != want {
		r.t.Errorf("metrics are %q, want %q", s, want)
	}
}

var groupKey = kinds.Key{Kind: kinds.WorkloadGroup, Namespace: "vm", Name: "reviews"}

func reviews() *kinds.Object {
	return &kinds.Object{Key: groupKey, UID: "g1", Spec: &networkingv1.WorkloadGroup{
		Metadata: &networkingv1.WorkloadGroup_ObjectMeta{
			Labels:      map[string]string{"app": "reviews", "version": "v1", "shared": "group"},
			Annotations: map[string]string{"note": "hello", annotationController: "somebody", annotationDisconnected: "now"},
		},
		Template: &networkingv1.WorkloadEntry{
			Ports: map[string]uint32{"http": 8080}, ServiceAccount: "reviews-sa",
			Labels: map[string]string{"app": "reviews", "tier": "t", "shared": "template"}, Weight: 3,
			Network: "template-net", Locality: "r1/z1/s1",
		},
	}}
}

// stream returns a proxy of the group.
func stream(id string, edit ...func(*xds.Client)) xds.Client {
	c := xds.Client{ID: id, Address: "10.1.2.3:4567", Peer: proved("vm", "reviews-sa"), Proxy: &node.Proxy{
		ID: "vm-1.vm", Namespace: "vm", RegisterGroup: "reviews", IPs: []string{"10.9.0.1", "10.9.0.2"}, Network: "net-1",
		Labels: map[string]string{"app": "nodeapp", "extra": "x"}, Locality: [3]string{"r", "z", ""},
	}}
	for _, e := range edit {
		e(&c)
	}
	return c
}

func vm() types.NamespacedName {
	return types.NamespacedName{Namespace: "vm", Name: "reviews-10.9.0.1-net-1"}
}

// state returns the instance that holds the entry, and its health.
func (w *world) state() string {
	o := w.Object(objectKey(vm()))
	if o == nil {
		return "none"
	}
	s := o.Annotations[annotationController]
	switch {
	case o.Annotations[annotationConnected] != "" && o.Annotations[annotationDisconnected] == "":
		s += " connected"
	case o.Annotations[annotationDisconnected] != "" && o.Annotations[annotationConnected] == "":
		s += " disconnected"
	}
	if h := o.Annotations[kinds.AnnotationHealthy]; h != "" {
		s += " healthy=" + h
	}
	return s
}

func (w *world) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := w.state(); got != want {
		t.Errorf("the entry is %q, want %q", got, want)
	}
}

func (r *replica) connect(c xds.Client) {
	r.t.Helper()
	must.Succeed(r.t, r.Connected(r.t.Context(), c))
}

// known returns the number of streams and entries in the controller.
func (r *replica) known() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries) + len(r.streams)
}

// proved returns a peer with a verified identity.
func proved(namespace, account string) identity.Peer {
	return identity.Peer{
		ID:    identity.ID{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: account},
		Proof: identity.Certificate, Address: netip.MustParseAddrPort("10.1.2.3:4567"),
	}
}

// unproved returns a peer without an identity.
func unproved(address string) identity.Peer {
	return identity.Peer{Address: netip.MustParseAddrPort(address)}
}
