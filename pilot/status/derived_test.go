package status

import (
	"context"
	"testing"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// A status that stages derive is written where the object does not say it, and once, until the object comes back. What
// others wrote stays. Objects of files are not written, and what is refused is not tried again.
func TestDerived(t *testing.T) {
	key := kinds.Key{Kind: kinds.Ingress, Namespace: "a", Name: "web"}
	resource := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"namespace": "a", "name": "web"}, "status": map[string]any{"other": "x"},
	}})
	value := func(ip string) map[string]any {
		return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": ip}}}}
	}
	object := &kinds.Object{Key: key}
	wanted := &derive.Status{Of: key, Value: value("192.0.2.1"), Current: map[string]any{"loadBalancer": nil}}
	w := NewDerived(DerivedOptions{
		Client: client, Statuses: taken(&wanted), Object: func(kinds.Key) *kinds.Object { return object },
	})
	w.begin(rate.Inf)
	stages := func(value, current map[string]any) { wanted = &derive.Status{Of: key, Value: value, Current: current} }
	sync := func(ok bool, writes int) {
		t.Helper()
		client.ClearActions()
		if got := w.sync(context.Background()); got != ok {
			t.Errorf("sync: %v, want %v", got, ok)
		}
		if n := len(client.Actions()); n != writes {
			t.Errorf("%d writes, want %d: %v", n, writes, client.Actions())
		}
	}
	sync(true, 1)
	u, err := client.Resource(resource).Namespace("a").Get(context.Background(), "web", metav1.GetOptions{})
	must.Succeed(t, err)
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	if other, _, _ := unstructured.NestedString(u.Object, "status", "other"); len(list) != 1 || other != "x" {
		t.Errorf("status %v", u.Object["status"])
	}
	sync(true, 0) // it has not come back yet
	object = &kinds.Object{Key: key}
	stages(value("192.0.2.1"), value("192.0.2.1"))
	sync(true, 0)
	if len(w.open) > 0 {
		t.Error("a status that the object has is compared again")
	}
	sync(true, 0)
	object = &kinds.Object{Key: key}
	stages(value("192.0.2.1"), value("192.0.2.9")) // somebody else wrote
	sync(true, 1)
	stages(value("192.0.2.2"), value("192.0.2.9"))
	sync(true, 1)
	object = &kinds.Object{Key: key, Position: "x.yaml:1:1"}
	stages(value("192.0.2.3"), value("192.0.2.9"))
	sync(true, 0)

	object = &kinds.Object{Key: key}
	stages(value("192.0.2.3"), value("192.0.2.8"))
	var refusal error
	client.PrependReactor("patch", "ingresses", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	refusal = apierrors.NewInternalError(context.DeadlineExceeded)
	sync(false, 1)
	sync(false, 1)
	refusal = apierrors.NewForbidden(resource.GroupResource(), "web", nil)
	sync(true, 1)
	sync(true, 0)
}

// taken returns a status as World.TakeStatuses does: when it is another one than before.
func taken(wanted **derive.Status) func(bool) map[kinds.Key]*derive.Status {
	var last *derive.Status
	return func(all bool) map[kinds.Key]*derive.Status {
		changed := map[kinds.Key]*derive.Status{}
		if *wanted != nil && (all || *wanted != last) {
			changed[(*wanted).Of] = *wanted
		} else if *wanted == nil && last != nil {
			changed[last.Of] = nil
		}
		last = *wanted
		return changed
	}
}

// TestSettled: of statuses that objects have nothing is kept, and none is looked at again.
func TestSettled(t *testing.T) {
	key := kinds.Key{Kind: kinds.Ingress, Namespace: "a", Name: "web"}
	var wanted *derive.Status
	looked := 0
	w := NewDerived(DerivedOptions{Statuses: taken(&wanted), Object: func(kinds.Key) *kinds.Object {
		looked++
		return &kinds.Object{Key: key}
	}})
	w.begin(rate.Inf)
	same := map[string]any{"a": "b"}
	const n = 100
	for range n {
		wanted = &derive.Status{Of: key, Value: same, Current: same}
		for range 3 {
			if !w.sync(context.Background()) || len(w.open)+len(w.sent) > 0 {
				t.Fatal("a status that the object has is not settled")
			}
		}
	}
	if looked != n {
		t.Errorf("%d statuses were looked at, want %d", looked, n)
	}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	w.o.Client = client
	wanted = &derive.Status{Of: key, Value: same, Current: map[string]any{"a": nil}}
	w.sync(context.Background()) // it is not found
	if wanted = nil; len(w.open) != 1 || !w.sync(context.Background()) || len(w.open)+len(w.sent) > 0 {
		t.Errorf("a status that is not wanted any more is kept: %v", w.open)
	}
	w.begin(rate.Inf)
	wanted = &derive.Status{Of: key, Value: same, Current: map[string]any{"a": nil}}
	w.sync(context.Background())
	w.begin(rate.Inf)
	if w.sync(context.Background()); len(w.open) != 1 {
		t.Error("one that begins again does not look at all")
	}
}
