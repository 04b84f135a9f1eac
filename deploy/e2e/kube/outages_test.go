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

// TestOutages: the API server is away when the server starts, and crashes later.
func TestOutages(t *testing.T) {
	t.Parallel()
	w := newMesh(t)
	w.Interpose()
	w.lateStart()
	w.through("a crash", func() {
		w.KillAPIServer()
		late := connect(t, "sotw", w.grpc, shopGuards)
		w.eventually("a proxy that connects meanwhile has everything", late.complete)
		late.check(t, "connected while the API server is away", nil)
		w.Must(w.StartAPIServer(w.Ctx))
	})
}

// TestPartition: the network loses all packets for a while.
func TestPartition(t *testing.T) {
	t.Parallel()
	w := newMesh(t)
	w.Write(service("doomed"))
	w.Interpose()
	w.serve()
	w.settled()
	w.through("a partition", w.partition)
}

// lateStart keeps the API server away when the server starts, and then one kind is served late. Until all kinds are
// read no proxy is served, and waiting proxies then get everything at once.
func (w *mesh) lateStart() {
	w.Between.Refuse()
	w.serve()
	w.eventually("the trouble is told", w.away)
	if w.served() {
		w.T.Error("served while the API server is away")
	}
	late := faults.Match{Verbs: []string{"list", "watch"}, Resource: "virtualservices"}
	w.Between.Set(faults.Rule{Match: late, Delay: 4 * time.Second})
	w.Between.Heal()
	answered := func() bool {
		return slices.ContainsFunc(w.Between.Requests(late), func(r faults.Request) bool { return r.Code == http.StatusOK })
	}
	for early := false; !early && !answered(); time.Sleep(20 * time.Millisecond) {
		if early = w.served(); early && !answered() {
			w.T.Error("served before one kind was read")
		}
	}
	w.settled()
	w.Between.Set()
	w.eventually("the finding goes", w.well)
}

// served reports whether a client could take the server for ready.
func (w *mesh) served() bool {
	conn, err := net.Dial("tcp", w.grpc)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || w.ready() || slices.ContainsFunc(w.clients, func(c *adsClient) bool { return c.types() != 0 })
}

// partition drops all packets while history is removed and the world changes.
func (w *mesh) partition() {
	w.Between.Lose()
	w.Must(w.ForgetHistory(w.Ctx))
	w.remove(service("doomed"))
	w.Write(service("during-partition"))
	w.eventually("the partition is told", w.away)
	w.steady("partition")
	w.Between.Forget()
	w.Between.Heal()
	w.gone = append(w.gone, clusterOf("doomed"), "doomed.shop.svc.cluster.local:80")
	healed := time.Now()
	w.arrives(envoy.ClusterType, clusterOf("during-partition"), "")
	w.goes(envoy.ClusterType, clusterOf("doomed"))
	w.T.Logf("%.1f s after the partition all is as it should be", time.Since(healed).Seconds())
	if !slices.ContainsFunc(w.Between.Requests(faults.Match{Resource: "services"}),
		func(r faults.Request) bool { return r.Initial || r.Verb == "list" }) {
		w.T.Error("history was not forgotten: services were not read anew")
	}
}
