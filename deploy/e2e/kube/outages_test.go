package kube

import (
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestOutages takes one server, with two proxies connected, through what API servers and the way to them do to it.
func TestOutages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(service("doomed"))
	w.interpose()
	w.lateStart()
	w.through("a crash", func() {
		w.KillAPIServer()
		late := connect(t, "sotw", w.grpc, shopGuards)
		w.eventually("a proxy that connects meanwhile has everything", late.complete)
		late.check(t, "connected while the API server is away", nil)
		w.must(w.StartAPIServer(w.ctx))
	})
	w.through("a partition", w.partition)
}

// lateStart has the API server away when the server starts, and then one kind come late: until all is read nobody is
// served, and who waits gets all at once.
func (w *world) lateStart() {
	w.between.Refuse()
	w.serve()
	w.eventually("the trouble is told", w.away)
	if w.served() {
		w.t.Error("served while the API server is away")
	}
	late := faults.Match{Verbs: []string{"list", "watch"}, Resource: "virtualservices"}
	w.between.Set(faults.Rule{Match: late, Delay: 4 * time.Second})
	w.between.Heal()
	answered := func() bool {
		return slices.ContainsFunc(w.between.Requests(late), func(r faults.Request) bool { return r.Code == http.StatusOK })
	}
	for early := false; !early && !answered(); time.Sleep(20 * time.Millisecond) {
		if early = w.served(); early && !answered() {
			w.t.Error("served before one kind was read")
		}
	}
	w.settled()
	w.between.Set()
	w.eventually("the finding goes", w.well)
}

// served reports whether anybody could take the server for ready.
func (w *world) served() bool {
	conn, err := net.Dial("tcp", w.grpc)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || w.ready() || slices.ContainsFunc(w.clients, func(c *adsClient) bool { return c.types() != 0 })
}

// partition has the network take all and bring nothing, while history is forgotten and the world goes on.
func (w *world) partition() {
	w.between.Lose()
	w.must(w.ForgetHistory(w.ctx))
	w.remove(service("doomed"))
	w.apply(service("during-partition"))
	w.eventually("the partition is told", w.away)
	w.steady("partition")
	w.between.Forget()
	w.between.Heal()
	w.gone = append(w.gone, clusterOf("doomed"), "doomed.shop.svc.cluster.local:80")
	healed := time.Now()
	w.arrives(envoy.ClusterType, clusterOf("during-partition"), "")
	w.goes(envoy.ClusterType, clusterOf("doomed"))
	w.t.Logf("%.1f s after the partition all is as it should be", time.Since(healed).Seconds())
	if !slices.ContainsFunc(w.between.Requests(faults.Match{Resource: "services"}), func(r faults.Request) bool { return r.Initial || r.Verb == "list" }) {
		w.t.Error("history was not forgotten: services were not read anew")
	}
}
