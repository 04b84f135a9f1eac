package kube

import (
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// silence is longer than the server waits for a ping before it gives up a connection.
const silence = 18 * time.Second

// TestFrozen stops and resumes kube-apiserver: its connections stay open and get no answer for a while. The server is
// connected directly, so that the frozen process has to answer its pings.
func TestFrozen(t *testing.T) {
	t.Parallel()
	w := newMesh(t)
	w.serve()
	w.settled()
	w.through("kube-apiserver frozen", func() {
		w.freeze(w.FreezeAPIServer, func() error {
			w.eventually("it is told", func() bool { return w.away() && w.stalled("services") })
			late := connect(t, "delta", w.grpc, shopGuards)
			w.eventually("a proxy that connects meanwhile has everything", late.complete)
			late.check(t, "connected while the API server is frozen", nil)
			return w.ThawAPIServer()
		}, "kube-apiserver")
	})
	if w.stalled("services") {
		t.Error("the metric is still raised")
	}
}

// TestEtcdFrozen is TestFrozen for etcd.
func TestEtcdFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	t.Parallel()
	w := newMesh(t)
	w.serve()
	w.settled()
	w.through("etcd frozen", func() { w.freeze(w.FreezeEtcd, w.ThawEtcd, "etcd") })
}

// freeze creates a service meanwhile, which is served once the cluster runs again.
func (w *mesh) freeze(stop, resume func() error, name string) {
	w.T.Helper()
	w.Must(stop())
	written := make(chan struct{})
	go func() {
		defer close(written)
		for w.Apply(w.Ctx, []byte(service("during-"+name))) != nil && w.Ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	time.Sleep(silence)
	w.steady(name + " is frozen")
	w.Must(resume())
	<-written
	w.arrives(envoy.ClusterType, clusterOf("during-"+name), "")
}
