package clusters

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// With the age of the chart and more proxies, TestShares is a measurement:
//
//	go test ./deploy/e2e/clusters -run TestShares -v -timeout 50m -args -shares.age 10m -shares.proxies 3000
var (
	sharesAge     = flag.Duration("shares.age", 5*time.Second, "age at which the replicas of TestShares close connections")
	sharesProxies = flag.Int("shares.proxies", 240, "number of proxies of TestShares")
)

// TestShares checks that a replica that is added has its share of the proxies after one age of connections, and that
// proxies that connect again are sent next to nothing.
func TestShares(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout+4**sharesAge)
	defer cancel()
	work, configDir := t.TempDir(), t.TempDir()
	suite.LogTails(t, work)
	var mesh strings.Builder
	for i := range 100 {
		fmt.Fprintf(&mesh, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: default}\nspec: {clusterIP: 10.96.0.%d, "+
			"ports: [{name: http, port: 80}]}\n---\n", i, i+1)
	}
	suite.Write(t, filepath.Join(configDir, "mesh.yaml"), mesh.String())
	seed, _ := histories.Seed(t)
	b := &balancer{random: rand.New(rand.NewPCG(seed, 0))}
	var all [3]*controlplane.Process
	for i := range all {
		dir := filepath.Join(work, fmt.Sprint(i))
		must.Succeed(t, os.Mkdir(dir, 0o755))
		var err error
		all[i], err = controlplane.Start(ctx, controlplane.Options{
			Binary: os.Getenv(pilotVar), ConfigDir: configDir, WorkDir: dir, Args: []string{"--keepaliveMaxServerConnectionAge", sharesAge.String()},
		})
		must.Succeed(t, err)
		t.Cleanup(all[i].Kill)
	}
	b.serve(t, all[0].GRPC, all[1].GRPC)
	shares := func() (out [3]float64) {
		for i, p := range all {
			out[i], _ = p.Metric(ctx, `pilot_xds{version="1.31.0"}`) // it is not there before the first proxy
		}
		return out
	}
	fleet, err := load.Start(ctx, load.Options{
		Address: b.address, Proxies: *sharesProxies, Rate: 200, Logger: slog.New(slog.DiscardHandler),
		Identity: func(i int) load.Identity {
			return load.Identity{
				Pod: fmt.Sprint("web-", i), Namespace: "default", IP: fmt.Sprintf("10.1.%d.%d", i/250, i%250), ServiceAccount: "web",
			}
		},
	})
	must.Succeed(t, err)
	t.Cleanup(fleet.Stop)
	must.Succeed(t, fleet.Wait(ctx))
	first := fleet.Counters()
	t.Logf("at first %v, %d bytes a proxy", shares(), first.Bytes()/int64(fleet.Size()))

	b.forward(all[0].GRPC, all[1].GRPC, all[2].GRPC)
	began := time.Now()
	even := func(list [3]float64) bool {
		each := float64(fleet.Size()) / float64(len(list))
		for _, n := range list {
			if n < each*0.8 || n > each*1.2 {
				return false
			}
		}
		return true
	}
	for is := shares(); !even(is); is = shares() {
		select {
		case <-ctx.Done():
			t.Fatalf("after %s the replicas have %v proxies", time.Since(began), is)
		case <-time.After(*sharesAge / 20):
		}
	}
	again := fleet.Counters().Since(first)
	t.Logf("after %s %v: %d streams ended", time.Since(began).Round(time.Second/10), shares(), again.Refused)
	if each := again.Bytes() / max(again.Refused, 1); each > first.Bytes()/int64(fleet.Size())/10 {
		t.Errorf("a proxy that connects again is sent %d bytes; the first time it was sent %d", each, first.Bytes()/int64(fleet.Size()))
	}
}

// balancer forwards each connection to one of several addresses, which it chooses at random, as kube-proxy does.
type balancer struct {
	address string

	mu     sync.Mutex
	to     []string
	random *rand.Rand
}

// forward changes the addresses. Connections that are open stay where they are.
func (b *balancer) forward(to ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = to
}

func (b *balancer) serve(t *testing.T, to ...string) {
	b.forward(to...)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	b.address = l.Addr().String()
	relayed := make(chan error, 1)
	go func() { relayed <- pods.Relay(t.Context(), l, b.dial) }()
	t.Cleanup(func() {
		if err := <-relayed; err != nil {
			t.Error(err)
		}
	})
}

// dial connects to one of the addresses. It hides the type of the connection: to splice it would take four more files.
func (b *balancer) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	to := b.to[b.random.IntN(len(b.to))]
	b.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	return struct{ net.Conn }{conn}, err
}
