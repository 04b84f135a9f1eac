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
	wanted := []*derive.Status{{Of: key, Value: value("192.0.2.1"), Current: map[string]any{"loadBalancer": nil}}}
	w := NewDerived(DerivedOptions{
		Client: client, Statuses: func() []*derive.Status { return wanted }, Object: func(kinds.Key) *kinds.Object { return object },
	})
	w.limit, w.sent, w.refused = rate.NewLimiter(rate.Inf, 1), map[kinds.Key]sent{}, map[*kinds.Kind]bool{}
	w.settled = map[*derive.Status]bool{}
	stages := func(value, current map[string]any) {
		wanted = []*derive.Status{{Of: key, Value: value, Current: current}}
	} // statuses are frozen
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
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	if other, _, _ := unstructured.NestedString(u.Object, "status", "other"); len(list) != 1 || other != "x" {
		t.Errorf("status %v", u.Object["status"])
	}
	sync(true, 0) // it has not come back yet
	object = &kinds.Object{Key: key}
	stages(value("192.0.2.1"), value("192.0.2.1"))
	sync(true, 0)
	if !w.settled[wanted[0]] {
		t.Error("a status that the object has is compared again")
	}
	sync(true, 0)
	object = &kinds.Object{Key: key}
	stages(value("192.0.2.1"), value("192.0.2.9")) // somebody else wrote
	sync(true, 1)
	stages(value("192.0.2.2"), value("192.0.2.9"))
	sync(true, 1)
	object = &kinds.Object{Key: key, Position: "x.yaml:1:1"}
	sync(true, 0)

	object = &kinds.Object{Key: key}
	var refusal error
	client.PrependReactor("patch", "ingresses", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	refusal = apierrors.NewInternalError(context.DeadlineExceeded)
	sync(false, 1)
	sync(false, 1)
	refusal = apierrors.NewForbidden(resource.GroupResource(), "web", nil)
	sync(true, 1)
	sync(true, 0)
}

// TestSettled: what is kept of statuses is bounded by how many there are.
func TestSettled(t *testing.T) {
	key := kinds.Key{Kind: kinds.Ingress, Namespace: "a", Name: "web"}
	var wanted []*derive.Status
	w := NewDerived(DerivedOptions{
		Statuses: func() []*derive.Status { return wanted }, Object: func(kinds.Key) *kinds.Object { return &kinds.Object{Key: key} },
	})
	w.settled = map[*derive.Status]bool{}
	same := map[string]any{"a": "b"}
	for range 1000 {
		wanted = []*derive.Status{{Of: key, Value: same, Current: same}}
		if !w.sync(context.Background()) || !w.settled[wanted[0]] {
			t.Fatal("a status that the object has is not settled")
		}
	}
	if n := len(w.settled); n > 100 {
		t.Errorf("%d statuses are kept of one", n)
	}
}
