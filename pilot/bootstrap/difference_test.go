package bootstrap

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/diff"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

var differenceChanges = flag.Int("differences", 100, "how many random changes TestDifferences predicts; 500 is thorough")

// changesOfWorld is how many of them befall one world.
const changesOfWorld = 25

// TestDifferences predicts random changes by package diff, and then has a server take them. What the server then
// pushes to a proxy of every sort is exactly what was predicted for it: those resources, added, changed or removed, and
// no others; and nothing to any proxy that was not named. What changes is of every kind that is translated or derived
// from: of Istio, Kubernetes and the Gateway API.
func TestDifferences(t *testing.T) {
	seed, _ := histories.Seed(t)
	reached := map[string]int{}
	// missing returns a proxy or a type that no change has reached. What edge and ingress serve is derived.
	missing := func() string {
		for _, name := range []string{"edge", "ingress", "sds", "ecds", "nds"} {
			if reached[name] == 0 {
				return name
			}
		}
		return ""
	}
	// Random changes may miss a proxy or a type: more of them follow then.
	most := *differenceChanges
	if most >= 100 {
		most *= 10
	}
	least := *differenceChanges
	if testing.Short() {
		least = changesOfWorld
	}
	for done := 0; done < least || done < most && missing() != ""; done += changesOfWorld {
		predict(t, seed+uint64(done), changesOfWorld, reached)
		if t.Failed() {
			return
		}
	}
	t.Logf("changes that reach each proxy and each type: %v", reached)
	if name := missing(); name != "" && most > *differenceChanges {
		t.Errorf("no change reaches %s", name)
	}
}

func predict(t *testing.T, seed uint64, changes int, reached map[string]int) {
	t.Helper()
	p := newPast(t, seed)
	p.add(t, "testdata/derived.yaml")
	signer := selfSigned(t)
	p.add(t, "testdata/others.yaml", certified(t, signer)...)
	o := certificateOptions(t)
	o.Certificates.StateDir = ""
	plug(t, o.Certificates.Folder, signer)
	o.Logger, o.DebounceAfter, o.Poll, o.NoWatch = slog.New(slog.DiscardHandler), time.Millisecond, time.Hour, true
	o.ConfigDir, o.Monitoring = t.TempDir(), ""
	o.Limits.Departure = time.Nanosecond
	s, err := New(o)
	must.Succeed(t, err)
	h := &history{contents: contents{known: map[string]*content{}, version: map[string]string{}}, server: s, past: p}
	stop := run(t, s)
	defer func() { _ = stop() }()
	roots := x509.NewCertPool()
	roots.AddCert(signer.Roots[0])
	eventually(t, "the server is ready", s.ready.Load)
	s.throttle.Take(p.start(t))
	h.settle()

	w := newWorld(s.o, nil, nil, nil, nil)
	comparer := diff.New(translate.New(translate.Options{Features: catalog.Features(), Idle: 32 << 20}))
	proxies := map[string]*node.Proxy{}
	watchers := map[string]*watcher{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	all := nodes()
	all["edge"] = map[string]string{"ID": "router~10.9.0.10~edge-0.b~b.svc.cluster.local",
		"NAMESPACE": "b", "gateway.networking.k8s.io/gateway-name": "edge"}
	all["ingress"] = map[string]string{"ID": "router~10.9.0.11~ingress-0.istio-system~istio-system.svc.cluster.local",
		"NAMESPACE": "istio-system", "istio": "ingressgateway"}
	for name, facts := range all {
		n := nodeOf(t, facts, delta)
		if proxies[name], err = node.Parse(n); err != nil {
			t.Fatal(err)
		}
		proof := proofs()[name]
		conn, err := grpc.NewClient("passthrough:///"+s.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.Succeed(t, err)
		defer conn.Close()
		if proof != "" {
			conn = dialSecure(t, s.Addresses().SecureGRPC, roots,
				leafOf(t, signer, "spiffe://cluster.local/ns/"+proxies[name].Namespace+"/sa/"+proof))
		}
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		must.Succeed(t, err)
		x := newWatcher(stream, proxies[name].DNSCapture, proof != "")
		watchers[name] = x
		for _, typeURL := range wholeTypes(x.dns) {
			r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}
			if typeURL == envoy.ClusterType {
				r.Node = n
			}
			must.Succeed(t, stream.Send(r))
		}
		running.Add(1)
		go func() {
			defer running.Done()
			for {
				r, err := stream.Recv()
				if err != nil {
					x.fail(err)
					return
				}
				x.take(r)
			}
		}()
	}
	before, err := comparer.Look(w.Commit(h.present(), time.Time{}), proxies)
	must.Succeed(t, err)
	rest := func(v *diff.View, what string) bool {
		for name, x := range watchers {
			var late string
			for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
				if late = x.differs(v, name); late == "" || time.Now().After(end) {
					break
				}
			}
			if late != "" {
				t.Errorf("seed %d, %s, %s: it never has what is predicted: %s\n%s", seed, what, name, late, strings.Join(p.told, "\n"))
				return false
			}
			if !x.barrier() {
				t.Errorf("seed %d, %s, %s: it is answered no more", seed, what, name)
				return false
			}
		}
		return true
	}
	if !rest(before, "at first") {
		return
	}
	for n := range changes {
		for _, x := range watchers {
			x.reset()
		}
		p.told = nil
		batch := p.next(t)
		after, err := comparer.Look(w.Commit(batch, time.Time{}), proxies)
		must.Succeed(t, err)
		predicted := map[string][]string{}
		for _, g := range comparer.Compare(before, after).Groups {
			for _, name := range g.Proxies {
				reached[name]++
				for _, c := range g.Changes {
					reached[c.Type]++
				}
				for _, c := range g.Changes {
					if c.Type != "sds" || proofs()[name] != "" {
						predicted[name] = append(predicted[name], describe(c.Type, c.Name, c.Has == nil))
					}
				}
			}
		}
		s.throttle.Take(batch)
		h.settle()
		if !rest(after, fmt.Sprintf("change %d", n)) {
			return
		}
		for name, x := range watchers {
			slices.Sort(predicted[name])
			if got := x.pushed(); !slices.Equal(got, predicted[name]) {
				t.Errorf("seed %d, change %d, %s: pushed\n%s\npredicted\n%s\nwhat changed:\n%s", seed, n, name,
					strings.Join(got, "\n"), strings.Join(predicted[name], "\n"), strings.Join(p.told, "\n"))
				return
			}
		}
		before = after
	}
}

// add has objects of a file change, too: those that others are derived from, of the Gateway API and Ingresses.
func (p *past) add(t *testing.T, path string, replaced ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	for _, o := range readObjects(t, path, strings.NewReplacer(replaced...).Replace(string(text))) {
		if p.pool[o.Key] == nil {
			p.keys = append(p.keys, o.Key)
		}
		p.pool[o.Key] = append(p.pool[o.Key], o)
	}
}

// proofs are the service accounts of proxies that prove their identity, and so are sent secrets, by what they are
// called. The other proxies are of Pods that have another service account with each version, or none.
func proofs() map[string]string {
	return map[string]string{"gateway": "gw", "second": "gw", "edge": "edge-istio", "ingress": "ingress", "scoped": "x", "plain": "y"}
}

// certified returns what takes the place of the certificates in a file of objects.
func certified(t *testing.T, signer *pki.Bundle) []string {
	t.Helper()
	text := base64.StdEncoding.EncodeToString
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signer.Roots[0].Raw})
	of := []string{"{{ca}}", text(ca), "{{pem}}", strconv.Quote(string(ca))}
	for _, name := range []string{"one", "two"} {
		c := leafOf(t, signer, "spiffe://example/"+name)
		key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		must.Succeed(t, err)
		chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
		of = append(of, "{{"+name+"}}",
			fmt.Sprintf("{tls.crt: %s, tls.key: %s}", text(chain), text(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))))
	}
	return of
}

func describe(short, name string, gone bool) string {
	if gone {
		return "- " + short + " " + name
	}
	return "+ " + short + " " + name
}
