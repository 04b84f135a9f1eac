package kube

import (
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// silence is longer than the server takes to give up a connection on which pings are not answered.
const silence = 18 * time.Second

// TestFrozen stops etcd, and then kube-apiserver, in the middle: connections stay, nobody answers, and after a while
// they go on as if nothing had been. The server is connected directly, so that it is the frozen process that answers
// its pings, or not.
func TestFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve()
	w.settled()
	w.through("etcd frozen", func() { w.freeze(w.FreezeEtcd, w.ThawEtcd, "etcd") })
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

// freeze asks for a service meanwhile, which comes when the cluster goes on.
func (w *world) freeze(stop, resume func() error, name string) {
	w.t.Helper()
	w.must(stop())
	written := make(chan struct{})
	go func() {
		defer close(written)
		for w.Apply(w.ctx, []byte(service("during-"+name))) != nil && w.ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	time.Sleep(silence)
	w.steady(name + " is frozen")
	w.must(resume())
	<-written
	w.arrives(envoy.ClusterType, clusterOf("during-"+name), "")
}
