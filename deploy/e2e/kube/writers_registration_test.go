package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/autoregistration"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

const group = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: reviews, namespace: vm}
spec:
  metadata:
    labels: {app: reviews, version: v1, shared: group}
    annotations: {note: hello}
  template:
    ports: {http: 8080}
    serviceAccount: reviews-sa
    labels: {app: reviews, tier: t, shared: template}
    weight: 3
`

func resource(k *kinds.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}
}

// live reads objects and passes them on as informers would.
type live struct {
	ctx context.Context
	c   *cluster.Cluster
}

func (l live) Object(k kinds.Key) *kinds.Object {
	u, err := l.c.Dynamic().Resource(resource(k.Kind)).Namespace(k.Namespace).Get(l.ctx, k.Name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return object(k.Kind, u)
}

func object(k *kinds.Kind, u *unstructured.Unstructured) *kinds.Object {
	spec := k.New()
	b, err := json.Marshal(u.Object["spec"])
	if err == nil {
		err = protojson.Unmarshal(b, spec.(proto.Message))
	}
	if err != nil {
		panic(err)
	}
	return &kinds.Object{
		Key: kinds.Key{Kind: k, Namespace: u.GetNamespace(), Name: u.GetName()}, UID: string(u.GetUID()), Labels: u.GetLabels(),
		Annotations: u.GetAnnotations(), Spec: spec,
	}
}

func (l live) ObjectsOf(kind *kinds.Kind) []*kinds.Object {
	list, err := l.c.Dynamic().Resource(resource(kind)).List(l.ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var out []*kinds.Object
	for i := range list.Items {
		out = append(out, object(kind, &list.Items[i]))
	}
	return out
}

func controller(ctx context.Context, t *testing.T, c *cluster.Cluster, access cluster.Access, instance string,
	grace time.Duration) *autoregistration.Controller {
	t.Helper()
	store, err := autoregistration.NewKubernetes(access.Config())
	must.Succeed(t, err)
	view := live{ctx, c}
	r := autoregistration.New(autoregistration.Options{
		Store: store, Instance: instance, World: view, Grace: grace,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func stream(id string) xds.Client {
	peer := identity.Peer{
		ID:    identity.ID{TrustDomain: "cluster.local", Namespace: "vm", ServiceAccount: "reviews-sa"},
		Proof: identity.Certificate, Address: netip.MustParseAddrPort("10.1.2.3:4567"),
	}
	return xds.Client{ID: id, Address: peer.Address.String(), Peer: peer, Proxy: &node.Proxy{
		ID: "vm-1.vm", Namespace: "vm", RegisterGroup: "reviews", IPs: []string{"10.9.0.1", "10.9.0.2"}, Network: "net-1", ReadinessProbe: true,
		Labels: map[string]string{"app": "nodeapp", "extra": "x"}, Locality: [3]string{"r", "z", "s"},
	}}
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	w, access := account(t)
	ctx, c := w.Ctx, w.Cluster
	must.Succeed(t, c.Apply(ctx, []byte(group)))
	entries := c.Dynamic().Resource(resource(kinds.WorkloadEntry)).Namespace("vm")
	get := func() *unstructured.Unstructured {
		t.Helper()
		u, err := entries.Get(ctx, "reviews-10.9.0.1-net-1", metav1.GetOptions{})
		must.Succeed(t, err)
		return u
	}
	a := controller(ctx, t, c, access, "istiod-a", time.Hour) // the machine may move to another replica within that time
	b := controller(ctx, t, c, access, "istiod-b", 2*time.Second)

	unknown := stream("0")
	unknown.Proxy.RegisterGroup = "none"
	if err := a.Connected(ctx, unknown); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a group that does not exist: %v", err)
	}
	began := time.Now()
	must.Succeed(t, a.Connected(ctx, stream("1")))
	made := get()
	at, err := time.Parse(time.RFC3339Nano, made.GetAnnotations()["istio.io/connectedAt"])
	if err != nil || at.Before(began) {
		t.Errorf("connected at %v, %v", at, err)
	}
	uid := live{ctx, c}.Object(kinds.Key{Kind: kinds.WorkloadGroup, Namespace: "vm", Name: "reviews"}).UID
	labels := map[string]any{"app": "nodeapp", "extra": "x", "shared": "group", "tier": "t", "version": "v1"}
	controls := true
	want := map[string]any{
		"labels": labels,
		"annotations": map[string]any{
			"istio.io/autoRegistrationGroup": "reviews", "istio.io/connectedAt": made.GetAnnotations()["istio.io/connectedAt"],
			"istio.io/workloadController": "istiod-a",
			"note":                        "hello", "proxy.istio.io/health-checks-enabled": "true",
		},
		"spec": map[string]any{
			"address": "10.9.0.1", "labels": labels, "locality": "r/z/s", "network": "net-1", "ports": map[string]any{"http": int64(8080)},
			"serviceAccount": "reviews-sa", "weight": int64(3),
		},
		"owner": []metav1.OwnerReference{
			{APIVersion: "networking.istio.io/v1", Kind: "WorkloadGroup", Name: "reviews", UID: types.UID(uid), Controller: &controls},
		},
	}
	metadata := made.Object["metadata"].(map[string]any)
	got := map[string]any{"labels": metadata["labels"], "annotations": metadata["annotations"], "spec": made.Object["spec"],
		"owner": made.GetOwnerReferences()}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}

	// Fields of other writers stay.
	foreign := `{"metadata":{"annotations":{"mine":"1"},"finalizers":["example.com/keep"]},"status":{"conditions":[{"type":"Other",` +
		`"status":"True"}]}}`
	for _, sub := range [][]string{nil, {"status"}} {
		if _, err := entries.Patch(ctx, made.GetName(), types.MergePatchType, []byte(foreign), metav1.PatchOptions{}, sub...); err != nil {
			t.Fatal(err)
		}
	}
	conditions := func(want string) {
		t.Helper()
		w.Eventually("conditions "+want, func() error {
			list, _, err := unstructured.NestedSlice(get().Object, "status", "conditions")
			got := ""
			for _, c := range list {
				m := c.(map[string]any)
				got += fmt.Sprintf("%v=%v(%v) ", m["type"], m["status"], m["message"])
			}
			if got != want {
				return errors.Join(err, errors.New(got))
			}
			return nil
		})
	}
	a.Health(stream("1"), true, "")
	conditions("Other=True(<nil>) Healthy=True(<nil>) ")
	a.Health(stream("1"), false, "no database")
	conditions("Other=True(<nil>) Healthy=False(no database) ")

	// To another replica, and away.
	a.Disconnected(stream("1"))
	must.Succeed(t, b.Connected(ctx, stream("1")))
	w.Eventually("held by the other replica", func() error {
		if n := get().GetAnnotations(); n["istio.io/workloadController"] != "istiod-b" || n["istio.io/connectedAt"] == "" ||
			n["istio.io/disconnectedAt"] != "" || n["mine"] != "1" {
			return fmt.Errorf("annotations %v", n)
		}
		return nil
	})
	if _, err := entries.Patch(ctx, made.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	b.Disconnected(stream("1"))
	w.Eventually("gone", func() error {
		u, err := entries.Get(ctx, "reviews-10.9.0.1-net-1", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("%v", u))
	})

	// Refusals of the API server are reported, and nothing is left behind.
	refused := stream("2")
	refused.Proxy.Locality = [3]string{string(make([]byte, 3000))}
	if err := a.Connected(ctx, refused); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("what the API server refuses: %v", err)
	}
}
