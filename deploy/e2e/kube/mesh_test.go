package kube

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// mesh changes, breaks, deletes and restores the mesh configuration of the chart. While it is invalid, the last valid
// one stays in force. After its deletion, the defaults are in force.
func (w *mesh) mesh() {
	maps := w.Client().CoreV1().ConfigMaps(root)
	const name = "istio"
	// as it is found in every cluster
	text, err := proto.Marshal(&clusterv3.Cluster{ConnectTimeout: durationpb.New(4321 * time.Second)})
	w.Must(err)
	marker := string(text)
	before, err := maps.Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	set := func(mesh string) {
		w.T.Helper()
		now, err := maps.Get(w.Ctx, name, metav1.GetOptions{})
		w.Must(err)
		now.Data["mesh"] = mesh
		_, err = maps.Update(w.Ctx, now, metav1.UpdateOptions{})
		w.Must(err)
	}
	has := func() bool {
		return w.clients[0].has(envoy.ClusterType, firstCluster, marker) && w.clients[1].has(envoy.ClusterType, firstCluster, marker)
	}
	const good = "connectTimeout: 4321s\n"
	set(good)
	w.arrives(envoy.ClusterType, firstCluster, marker)
	for what, broken := range map[string]string{"no-yaml": "connectTimeout: [", "no-duration": "connectTimeout: {a: b}\n",
		"no-field": "connectTimeouts: 1s\n"} {
		set(broken)
		w.eventually(what+" is told", func() bool { return w.finding("connectTimeout") || w.finding("ConfigMap istio-system/istio") })
		w.comes(what)
		if !has() {
			w.T.Errorf("%s took the last good mesh configuration away", what)
		}
		set(good)
		w.eventually(what+" is over", w.well)
	}
	w.steady("a broken mesh")

	w.Must(maps.Delete(w.Ctx, name, metav1.DeleteOptions{}))
	w.eventually("the defaults are in force", func() bool { return !has() })
	w.steady("no mesh")
	_, err = maps.Create(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: before.Labels},
		Data: map[string]string{"mesh": good}}, metav1.CreateOptions{})
	w.Must(err)
	w.arrives(envoy.ClusterType, firstCluster, marker)
}
