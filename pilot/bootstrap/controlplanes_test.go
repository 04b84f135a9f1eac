package bootstrap

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// plane is a control plane over a directory that reads others.
type plane struct {
	t       *testing.T
	dir     string
	address string
	server  *Server
	stop    func() error
}

// planes have an address each before any of them runs.
func planes(t *testing.T, n int) []*plane {
	t.Helper()
	var all []*plane
	for range n {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, &plane{t: t, dir: t.TempDir(), address: l.Addr().String()})
	}
	return all
}

// start runs it; it reads from others.
func (p *plane) start(relay bool, others ...*plane) {
	p.t.Helper()
	var list []string
	for _, o := range others {
		list = append(list, `{address: "xds://`+o.address+`"}`)
	}
	p.put("mesh", meshText("["+strings.Join(list, ", ")+"]"))
	o := testOptions(p.t)
	o.ConfigDir, o.GRPC, o.Relay = p.dir, p.address, relay
	var err error
	if p.server, err = New(o); err != nil {
		p.t.Fatal(err)
	}
	p.stop = run(p.t, p.server)
}

func (p *plane) put(name, text string) {
	p.t.Helper()
	write(p.t, filepath.Join(p.dir, name+".yaml"), text)
}

func (p *plane) remove(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, name+".yaml")); err != nil {
		p.t.Fatal(err)
	}
}

func sidecar(name string) string { return strings.ReplaceAll(sidecarText, "NAME", name) }

func (p *plane) ready() { p.t.Helper(); eventually(p.t, "ready", p.server.ready.Load) }

// Two control planes that read each other start at a time, and forget what its owner has deleted.
func TestTwoServersReadEachOther(t *testing.T) {
	all := planes(t, 2)
	a, b := all[0], all[1]
	a.put("of-a", sidecar("of-a"))
	b.put("of-b", sidecar("of-b"))
	a.start(false, b)
	eventually(t, "the first waits for the second alone", func() bool {
		awaited := a.server.from.Awaited()
		return a.server.Addresses().GRPC != "" && len(awaited) == 1 && strings.Contains(awaited[0], b.address)
	})
	// To proxies it is as before: it is not ready, and has nothing for them.
	if code, text := fetch(t, a.server.Addresses().HTTP, "/ready"); code != http.StatusServiceUnavailable || !strings.Contains(text, b.address) {
		t.Errorf("ready: %d %s", code, text)
	}
	proxy, err := dial(t, a.address).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "sidecar~10.0.0.1~p.a~a.svc.cluster.local"}, TypeUrl: envoy.ClusterType}
	if err := proxy.Send(request); err != nil {
		t.Fatal(err)
	}
	if r, err := proxy.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a proxy is answered before everything is known: %v, %v", r, err)
	}
	// What changes while it waits is what others get.
	a.put("later", sidecar("later"))
	a.remove("of-a")
	has(t, a.server, "later", true)
	has(t, a.server, "of-a", false)

	b.start(false, a)
	a.ready()
	b.ready()
	for _, p := range all {
		has(t, p.server, "later", true)
		has(t, p.server, "of-b", true)
		has(t, p.server, "of-a", false)
	}
	if stream := subscribe(t, a.address); !clusters(t, stream, "BlackHoleCluster") {
		t.Error("a proxy is not served")
	}

	a.remove("later")
	for _, p := range all {
		has(t, p.server, "later", false)
	}
	// One restarts while the other goes on, and while it is away something of its own goes.
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.remove("of-b")
	b.put("new", sidecar("new"))
	b.start(false, a)
	b.ready()
	for _, p := range all {
		has(t, p.server, "of-b", false)
		has(t, p.server, "new", true)
	}
	// An object that both have is gone when neither has it any more.
	a.put("both", sidecar("both"))
	has(t, b.server, "both", true)
	b.put("both", sidecar("both"))
	own := func(p *plane) bool {
		o := p.server.world.Object(kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "both"})
		return o != nil && !o.Relayed
	}
	eventually(t, "both have it as their own", func() bool { return own(a) && own(b) })
	a.remove("both")
	eventually(t, "the first has it from the second", func() bool {
		return a.server.world.Object(kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "both"}) != nil && !own(a)
	})
	b.remove("both")
	has(t, a.server, "both", false)
	has(t, b.server, "both", false)
}

// In a ring of three each has what the next one owns, and what is gone there goes.
func TestRingOfServers(t *testing.T) {
	all := planes(t, 3)
	for i, p := range all {
		p.put("own", sidecar([]string{"zero", "one", "two"}[i]))
		p.start(false, all[(i+1)%3])
	}
	for _, p := range all {
		p.ready()
	}
	has(t, all[0].server, "one", true)
	has(t, all[0].server, "two", false)
	has(t, all[1].server, "two", true)
	has(t, all[2].server, "zero", true)
	all[1].put("own", sidecar("another"))
	has(t, all[0].server, "another", true)
	has(t, all[0].server, "one", false)
}

// Servers in a chain with Relay hand on what they have from others, and nobody sees less of it while one
// starts.
func TestChainOfServers(t *testing.T) {
	all := planes(t, 3)
	all[2].put("first", sidecar("first"))
	all[1].put("middle", sidecar("middle"))
	all[0].start(false, all[1])
	all[1].start(true, all[2])
	eventually(t, "the middle one waits", func() bool { return len(all[1].server.from.Awaited()) == 1 })
	all[2].start(false)
	for _, p := range all {
		p.ready()
	}
	has(t, all[0].server, "first", true)
	has(t, all[0].server, "middle", true)
	all[2].remove("first")
	has(t, all[0].server, "first", false)
}
