package bootstrap

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
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
		// Connections come from 127.0.0.1: none can take a port of this address before its server listens.
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.1.1:0")
		must.Succeed(t, err)
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
	must.Succeed(p.t, os.Remove(filepath.Join(p.dir, name+".yaml")))
}

func sidecar(name string) string { return strings.ReplaceAll(sidecarText, "NAME", name) }

func (p *plane) ready() { p.t.Helper(); eventually(p.t, "ready", p.server.ready.Load) }

// A server waits for another one that it reads from. Once it has started, it goes on without.
func TestServerWaitsForTheOneItReads(t *testing.T) {
	all := planes(t, 2)
	a, b := all[0], all[1]
	a.put("of-a", sidecar("of-a"))
	b.put("of-b", sidecar("of-b"))
	a.start(false, b)
	eventually(t, "the first waits for the second alone", func() bool {
		awaited := a.server.from.Awaited()
		return a.server.Addresses().HTTP != "" && len(awaited) == 1 && strings.Contains(awaited[0], b.address)
	})
	code, text := fetch(t, a.server.Addresses().HTTP, "/ready")
	if code != http.StatusServiceUnavailable || !strings.Contains(text, b.address) {
		t.Errorf("ready: %d %s", code, text)
	}
	if address := a.server.Addresses().GRPC; address != "" {
		t.Errorf("streams are served at %s before everything is known", address)
	}
	a.put("later", sidecar("later"))
	a.remove("of-a")
	b.start(false)
	a.ready()
	has(t, a.server, "later", true)
	has(t, a.server, "of-a", false)
	has(t, a.server, "of-b", true)
	if stream := subscribe(t, a.address); !clusters(t, stream, "BlackHoleCluster") {
		t.Error("a proxy is not served")
	}
	must.Succeed(t, b.stop())
	a.put("last", sidecar("last"))
	has(t, a.server, "last", true)
	has(t, a.server, "of-b", true)
	if !a.server.ready.Load() {
		t.Error("not ready without the other")
	}
}

// Two servers that came to read each other, one restart after the other, forget what its owner has deleted.
func TestServersThatReadEachOther(t *testing.T) {
	all := planes(t, 2)
	a, b := all[0], all[1]
	restart := func(p *plane, others ...*plane) {
		t.Helper()
		must.Succeed(t, p.stop())
		p.start(false, others...)
		p.ready()
	}
	a.put("of-a", sidecar("of-a"))
	b.put("of-b", sidecar("of-b"))
	a.start(false)
	a.ready()
	b.start(false, a)
	b.ready()
	restart(a, b)
	for _, p := range all {
		has(t, p.server, "of-a", true)
		has(t, p.server, "of-b", true)
	}
	a.remove("of-a")
	for _, p := range all {
		has(t, p.server, "of-a", false)
	}
	// While one is away, something of its own goes.
	b.remove("of-b")
	b.put("new", sidecar("new"))
	restart(b, a)
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

// Servers in a chain hand on what they have from others only with Relay, and nobody sees less of it while one starts.
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
	all[2].put("second", sidecar("second"))
	has(t, all[0].server, "second", true)
	must.Succeed(t, all[1].stop())
	all[1].start(false, all[2])
	has(t, all[0].server, "second", false)
	has(t, all[0].server, "middle", true)
}
