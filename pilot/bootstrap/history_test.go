package bootstrap

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

var (
	historiesSeed = flag.Uint64("histories.seed", 0, "of the one history to run; 0: several run, from RAPID_SEED on")
	historiesFor  = flag.Duration("histories.for", 0, "how long to go through histories; 0: eight of them if RAPID_SEED is set, else for 10s")
)

// fixedHistories is how many histories run from a seed that is set. With -short it is a quarter of them.
const fixedHistories = 8

// timeout bounds the wait for anything to happen.
const timeout = 2 * time.Minute

// TestHistories runs the whole server, from changes through throttle, registries, Snapshots and translation to streams
// over gRPC, under random histories: the world changes while clients of every protocol, several to a proxy, connect,
// lag, stall, break off, resume and reject. Whenever all is at rest each of them has, byte for byte, what a fresh
// Translator without a memo makes of the newest Snapshot for its proxy, which is what it makes of a world to which all
// objects came at once; with each protocol the same. On the way nothing comes that is not new, nothing is removed that
// is not there, a version is always the same bytes, and nothing that a client has names a cluster that it has not.
//
// The seed of a failure is printed; -histories.seed runs it again. It decides which objects change, how they are
// batched, and what clients do in answer to which response. It does not decide how the goroutines of streams, senders
// and the throttle interleave, nor into how many commits changes fall: a failure that hangs on that may take some runs
// to come back. With RAPID_SEED the same histories run each time, and without it others each time. -histories.for says
// for how long: 10m is for the night.
func TestHistories(t *testing.T) {
	seed := *historiesSeed
	if seed != 0 {
		if err := runHistory(t, seed); err != nil {
			t.Fatalf("history %d: %v", seed, err)
		}
		return
	}
	begin, fixed := histories.Seed(t)
	end := time.Now().Add(max(*historiesFor, 10*time.Second))
	few, enough := fixed && *historiesFor == 0, int64(fixedHistories)
	if testing.Short() {
		enough /= 4
	}
	var begun, ran atomic.Int64
	another := func(n int64) bool { return n == 1 || few && n <= enough || !few && time.Now().Before(end) }
	t.Run("at once", func(t *testing.T) {
		for i := range 4 { // a history mostly waits: use more -parallel than there are processors
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for n := begun.Add(1); another(n); n = begun.Add(1) {
					seed := begin + uint64(n)
					if err := runHistory(t, seed); err != nil {
						t.Fatalf("run it again with -histories.seed=%d: %v", seed, err)
					}
					ran.Add(1)
				}
			})
		}
	})
	t.Logf("%d histories", ran.Load())
}

// TestKnownHistories runs histories that have found a fault, by the fault.
func TestKnownHistories(t *testing.T) {
	for name, seed := range map[string]uint64{
		"a mesh configuration that cannot be used":                                 61417918274743,
		"a mesh configuration that cannot be used, and another before it":          17688769807331,
		"a patched route configuration without virtual hosts, when one reconnects": 204593535008311,
		"a client that rejects": 273112222170233,
		"a client that rejects assignments, one of them of an unknown name": 99632730112156,
		"a client that resumes while the server is late":                    26158506885482,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := runHistory(t, seed); err != nil {
				t.Fatalf("run it again with -histories.seed=%d: %v", seed, err)
			}
		})
	}
}

// history is one run of a server.
type history struct {
	contents
	server    *Server
	past      *past
	clients   []*modelEnvoy
	nacks     bool
	responses atomic.Int64
	pictures  sync.Map

	mu     sync.Mutex
	broken error
	all    []*snapshot.Snapshot
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = err
	}
}

func (h *history) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

func (h *history) snapshots() []*snapshot.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// present returns all objects that are there.
func (h *history) present() []kinds.Change {
	var all []kinds.Change
	for k, o := range h.past.present {
		all = append(all, kinds.Change{Key: k, Object: o})
	}
	config.Sort(all)
	return all
}

// worlds returns the objects that are there, once for each mesh configuration that may be in force.
func (h *history) worlds() (list [][]kinds.Change) {
	all := h.present()
	i := slices.IndexFunc(all, func(c kinds.Change) bool { return c.Key.Kind == kinds.ConfigMap && !usable(c.Object) })
	if i < 0 {
		h.past.meshes = h.past.meshes[max(len(h.past.meshes)-1, 0):]
		return [][]kinds.Change{all}
	}
	for _, last := range h.past.meshes {
		o, m := *all[i].Object, all[i].Object.Spec.(*corev1.ConfigMap).DeepCopy()
		delete(m.Data, "mesh")
		if last != nil {
			m.Data["mesh"] = last.Spec.(*corev1.ConfigMap).Data["mesh"]
		}
		o.Spec = m
		world := slices.Clone(all)
		world[i].Object = &o
		list = append(list, world)
	}
	return list
}

// settle waits until all changes so far are in a Snapshot that was published.
func (h *history) settle() {
	w := h.server.world
	there := func() bool {
		all := w.AllObjects() // of one moment
		for _, k := range h.past.keys {
			if all[k] != h.past.present[k] {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(timeout); !there() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	// Commits are made one after the other: once one more has come, that one is over.
	last := kinds.Key{Kind: kinds.Node, Name: fmt.Sprintf("last-%d", h.past.r.Uint64())}
	h.server.throttle.Take([]kinds.Change{{Key: last, Object: &kinds.Object{Key: last, Spec: kinds.Node.New()}}})
	for end := time.Now().Add(timeout); h.server.world.Object(last) == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.server.throttle.Take([]kinds.Change{{Key: last}})
}

// nodes are proxies of every sort, most beside something of the pool, by what they are called. Those that are stock
// list no extensions of Istio's.
func nodes() map[string]map[string]string {
	return map[string]map[string]string{
		"web":    {"ID": "sidecar~10.1.0.1~web-0.a~a.svc.cluster.local", "NAMESPACE": "a"},
		"remote": {"ID": "sidecar~10.1.0.1~web-0.a~a.svc.cluster.local", "NAMESPACE": "a", "CLUSTER_ID": "remote", "NETWORK": "n2"},
		"api":    {"ID": "sidecar~10.1.0.4~api-0.b~b.svc.cluster.local", "NAMESPACE": "b"},
		"scoped": {"ID": "sidecar~10.9.0.3~x-0.c~c.svc.cluster.local", "NAMESPACE": "c", "app": "web"},
		"plain":  {"STOCK": "true", "ID": "sidecar~10.9.0.4~y-0.d~d.svc.cluster.local", "NAMESPACE": "d"},
		"pets":   {"ID": "sidecar~10.1.0.5~pets-0.a~a.svc.cluster.local", "NAMESPACE": "a"},
		"none":   {"ID": "sidecar~10.1.0.8~none-0.b~b.svc.cluster.local", "NAMESPACE": "b", "INTERCEPTION_MODE": "NONE", "tier": "front"},
		"vm": {"ID": "sidecar~10.2.0.1~vm-by-address.a~a.svc.cluster.local", "NAMESPACE": "a",
			"DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true", "INSTANCE_IPS": "10.2.0.1,fd00::7", "NETWORK": "n1"},
		"gateway": {"ID": "router~10.1.0.9~gw-0.istio-system~istio-system.svc.cluster.local",
			"NAMESPACE": "istio-system", "istio": "gw", "REQUESTED_NETWORK_VIEW": "n1,n3", "NETWORK": "n1"},
		"second": {"STOCK": "true", "ID": "router~10.9.0.9~gw-1.b~b.svc.cluster.local", "NAMESPACE": "b", "istio": "gw"},
	}
}

func nodeOf(t *testing.T, facts map[string]string, mode string) *corev3.Node {
	t.Helper()
	fields, labels := map[string]any{"CLUSTER_ID": "Kubernetes"}, map[string]any{}
	for k, v := range facts {
		if strings.ToUpper(k) == k {
			fields[k] = v
		} else {
			labels[k] = v
		}
	}
	fields["LABELS"] = labels
	metadata, err := structpb.NewStruct(fields)
	must.Succeed(t, err)
	var extensions []*corev3.Extension
	if facts["STOCK"] == "" {
		extensions = referenceNode(t, "web-a").GetExtensions()
	}
	minor := uint32(40)
	if mode == delta {
		minor = 36
	}
	return &corev3.Node{Id: facts["ID"], Metadata: metadata, Extensions: extensions, UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
		UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor}},
	}}
}

// referenceNode is one of those whose answers by the real istiod package translate is held against.
func referenceNode(t *testing.T, name string) *corev3.Node {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "translate", "testdata", "reference", "nodes", name+".json"))
	must.Succeed(t, err)
	n := &corev3.Node{}
	must.Succeed(t, protojson.Unmarshal(b, n))
	return n
}

func runHistory(t *testing.T, seed uint64) error {
	t.Helper()
	p := newPast(t, seed)
	o := testOptions(t)
	o.Logger, o.DebounceAfter, o.Poll, o.NoWatch = slog.New(slog.DiscardHandler), time.Millisecond, time.Hour, true
	o.ConfigDir, o.Monitoring = t.TempDir(), ""
	o.MultiCluster = clusterset.Options{Discovery: seed%2 == 0, Hosts: seed%2 == 0}
	o.Limits.Departure = time.Nanosecond // at rest every proxy has what the newest Snapshot holds
	write(t, filepath.Join(o.ConfigDir, "first.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: first}\n")
	first := readObjects(t, "first.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: first}\n")[0]
	s, err := New(o)
	must.Succeed(t, err)
	h := &history{contents: contents{known: map[string]*content{}, version: map[string]string{}}, server: s, past: p, nacks: chance(p.r, 3)}
	prepare := s.prepare
	s.prepare = func(s *snapshot.Snapshot) {
		h.mu.Lock()
		h.all = append(h.all, s)
		h.mu.Unlock()
		prepare(s)
	}
	stop := run(t, s)
	defer func() { _ = stop() }()
	eventually(t, "the server is ready", s.ready.Load)
	p.present[first.Key] = first
	s.throttle.Take(p.start(t))

	ctx, cancel := context.WithCancel(t.Context())
	all := nodes()
	called := slices.Sorted(maps.Keys(all))
	for _, i := range p.r.Perm(len(called))[:3] {
		for _, mode := range []string{whole, delta, divided} {
			for range 1 + p.r.IntN(4)/3 {
				salt := uint64(0)
				if h.nacks && chance(p.r, 2) {
					salt = p.r.Uint64()
				}
				conn, err := grpc.NewClient("passthrough:///"+s.Addresses().GRPC,
					grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10))
				must.Succeed(t, err)
				defer conn.Close()
				h.clients = append(h.clients, newModelEnvoy(discoveryv3.NewAggregatedDiscoveryServiceClient(conn),
					h, called[i], mode, nodeOf(t, all[called[i]], mode), p.r.Uint64(), salt))
			}
		}
	}
	for _, c := range h.clients {
		go c.run(ctx)
	}
	defer func() {
		cancel()
		for _, c := range h.clients {
			<-c.done
		}
	}()
	if err := h.live(t); err != nil {
		return fmt.Errorf("%w\nwhat changed:\n%s", err, strings.Join(p.told, "\n"))
	}
	return nil
}

// live goes through the history.
func (h *history) live(t *testing.T) error {
	t.Helper()
	r := h.past.r
	for round := range 3 {
		for range 5 + r.IntN(20) {
			h.past.told = append(h.past.told, fmt.Sprintf("--- at revision %d, %s", h.server.world.Snapshot().Revision, time.Now().Format("05.000")))
			if !chance(r, 4) {
				h.server.throttle.Take(h.past.next(t))
			}
			switch c := h.clients[r.IntN(len(h.clients))]; r.IntN(6) {
			case 0:
				c.orders <- order{connect: true}
			case 1:
				c.orders <- order{stall: time.Duration(r.IntN(200)) * time.Millisecond}
			case 2, 3:
				time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
			}
			if round > 0 { // before, clients have no configuration yet
				if err := h.inForce(); err != nil {
					return err
				}
			}
		}
		if err := h.rest(); err != nil {
			return err
		}
	}
	if !h.nacks {
		return nil
	}
	for _, c := range h.clients { // what they rejected they take now
		c.mu.Lock()
		c.salt = 0
		c.mu.Unlock()
		c.orders <- order{connect: true}
	}
	return h.rest()
}

// TestCommits: it does not matter into how many commits changes fall, nor how often an object changes in one of them.
// What registries make of them is what they make of all objects at once.
func TestCommits(t *testing.T) {
	histories.NoRace(t)
	for seed := range uint64(100) {
		p := newPast(t, seed)
		o := Options{Options: ingest.Options{
			Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes",
			MultiCluster: clusterset.Options{Discovery: seed%2 == 0, Hosts: seed%2 == 0},
		}}
		w, h := newWorld(o, nil, nil, nil, nil), &history{past: p}
		w.Commit(p.start(t), time.Time{})
		for range 2 {
			var batch []kinds.Change
			for range 1 + p.r.IntN(12) {
				batch = append(batch, p.next(t)...)
			}
			w.Commit(batch, time.Time{})
			once := newWorld(o, nil, nil, nil, nil)
			once.Commit(h.present(), time.Time{})
			if d := cmp.Diff(endpointsIn(once), endpointsIn(w)); d != "" {
				t.Fatalf("seed %d: endpoints at once (-) and in commits (+):\n%s\nwhat changed:\n%s", seed, d, strings.Join(p.told, "\n"))
			}
		}
	}
}

func endpointsIn(w *ingest.World) map[registry.ServiceKey][]*registry.Endpoint {
	all := map[registry.ServiceKey][]*registry.Endpoint{}
	for k, e := range w.Snapshot().EachEndpoints {
		all[k] = e.List
	}
	return all
}
