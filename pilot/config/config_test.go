package config

import (
	"strings"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

func TestEqual(t *testing.T) {
	istio := func() *kinds.Object {
		return &kinds.Object{Key: kinds.Key{Kind: kinds.Sidecar, Name: "a"}, Labels: map[string]string{"x": "1"}, Spec: &networkingv1.Sidecar{}}
	}
	kube := func() *kinds.Object {
		return &kinds.Object{
			Key: kinds.Key{Kind: kinds.Service, Name: "a"}, Spec: &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "1.2.3.4"}},
		}
	}
	for _, make := range []func() *kinds.Object{istio, kube} {
		moved := make()
		moved.Position = "elsewhere:1:1"
		if !Equal(make(), moved) {
			t.Error("the position counts")
		}
		for what, change := range map[string]func(*kinds.Object){
			"name": func(o *kinds.Object) { o.Name = "b" }, "uid": func(o *kinds.Object) { o.UID = "u" },
			"created":     func(o *kinds.Object) { o.Created = time.Unix(1, 0) },
			"labels":      func(o *kinds.Object) { o.Labels = map[string]string{"x": "2"} },
			"annotations": func(o *kinds.Object) { o.Annotations = map[string]string{"x": ""} },
			"spec": func(o *kinds.Object) {
				switch spec := o.Spec.(type) {
				case *networkingv1.Sidecar:
					spec.Egress = []*networkingv1.IstioEgressListener{{}}
				case *corev1.Service:
					spec.Spec.ClusterIP = "1.2.3.5"
				}
			},
		} {
			o := make()
			change(o)
			if Equal(make(), o) {
				t.Errorf("%s does not count", what)
			}
		}
	}
}

func TestSort(t *testing.T) {
	change := func(k *kinds.Kind, ns, name string) kinds.Change {
		return kinds.Change{Key: kinds.Key{Kind: k, Namespace: ns, Name: name}}
	}
	changes := []kinds.Change{
		change(kinds.VirtualService, "a", "x"), change(kinds.Service, "b", "x"), change(kinds.Service, "a", "y"),
		change(kinds.Namespace, "", "z"), change(kinds.Service, "a", "x"),
	}
	Sort(changes)
	var got []string
	for _, c := range changes {
		got = append(got, c.String())
	}
	if want := "Namespace z, Service a/x, Service a/y, Service b/x, VirtualService a/x"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}
