package progress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestHistories: replicas with real streams live through random histories, with clients that stall, reject, leave,
// resume elsewhere and start again, and replicas that lag, end, start and cannot be asked. Whenever one of them says
// that a generation is in force, each client that has configuration serves that generation or a later one. In the end
// the newest one is in force.
func TestHistories(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := &mesh{t: t, now: time.Unix(1000, 0), newest: 1}
				defer m.stop()
				m.run(n)
			})
		})
	}
}

// mesh has all replicas and clients of a history. It is the clock of the replicas.
type mesh struct {
	t        *rapid.T
	now      time.Time
	newest   int64 // generation of the object
	replicas []*member
	clients  []*client
	ended    bool // a replica has ended
	said     int  // times that a generation was said to be in force
}

func (m *mesh) Now() time.Time { return m.now }

// run makes the steps of a history.
func (m *mesh) run(n int) {
	for i := range n {
		m.replicas = append(m.replicas, &member{mesh: m, name: fmt.Sprint("r", i)})
	}
	for _, r := range m.replicas {
		r.start()
		r.tracker.started = m.now.Add(-time.Hour)
	}
	for _, r := range m.replicas {
		r.tracker.gone(nil) // it sees the others
		for name := range r.tracker.members.served {
			r.tracker.members.served[name] = m.now.Add(-time.Hour)
		}
	}
	for i := range 3 {
		m.clients = append(m.clients, &client{mesh: m, pod: fmt.Sprintf("p%d.a", i), versions: map[string]string{}})
		m.clients[i].connect(m.replicas[i%n])
		for m.clients[i].active == 0 {
			m.clients[i].take(time.Second, false)
		}
	}
	for range rapid.IntRange(5, 40).Draw(m.t, "steps") {
		m.step()
		m.check()
	}
	m.finish()
}

func (m *mesh) step() {
	r := m.replicas[rapid.IntRange(0, len(m.replicas)-1).Draw(m.t, "replica")]
	c := m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(m.t, "client")]
	switch step := rapid.IntRange(0, 13).Draw(m.t, "step"); {
	case step <= 2 && r.alive:
		if r.generation == m.newest {
			m.newest++
		}
		r.commit(r.generation + 1)
	case step == 3 && r.alive:
		r.publish(false, nil, fmt.Sprintf("eds b=%d", rapid.IntRange(1, 3).Draw(m.t, "endpoints")))
	case step == 4 && rapid.Bool().Draw(m.t, "really"):
		if m.now = m.now.Add(1500 * time.Millisecond); r.alive {
			r.end()
		} else {
			r.start()
		}
	case step == 5:
		r.silent = !r.silent
	case step == 6:
		c.leave()
		if rapid.IntRange(0, 3).Draw(m.t, "starts again") == 0 {
			*c = client{mesh: m, pod: c.pod, versions: map[string]string{}}
		}
	case step <= 8:
		if r.alive && (c.replica != r || c.stream == nil) {
			c.leave()
			c.connect(r)
		}
	default:
		for range rapid.IntRange(1, 4).Draw(m.t, "responses") {
			c.take(2*time.Millisecond, rapid.IntRange(0, 9).Draw(m.t, "rejects") == 0)
		}
	}
}

// check compares what a replica says with what the clients have.
func (m *mesh) check() {
	for _, r := range m.replicas {
		if !r.alive {
			continue
		}
		a := r.tracker.Ask(m.t.Context(), Question{Key: web, Generation: r.generation, UID: "1"})
		if a.State != InForce && a.State != WithoutEffect {
			continue
		}
		m.said++
		for _, c := range m.clients {
			if c.active > 0 && !c.unknown && c.active < r.generation {
				m.t.Fatalf("%s says that generation %d is %s, and %s (of %v) serves %d: %+v", r.name, r.generation, a.State, c.pod, c.replica,
					c.active, a)
			}
		}
	}
}

// finish lets everything arrive.
func (m *mesh) finish() {
	m.newest++
	for _, r := range m.replicas {
		if r.silent = false; !r.alive {
			r.start()
		}
	}
	for i, r := range m.replicas {
		r.publish(true, nil, "cds b=9", "eds a=9", "eds b=9") // a client may have rejected earlier versions
		r.commit(m.newest)
		if c := m.clients[i]; c.stream == nil {
			c.connect(r)
		}
	}
	for _, c := range m.clients {
		if c.stream == nil {
			c.connect(m.replicas[0])
		}
	}
	var a Answer
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		for _, c := range m.clients {
			c.take(time.Millisecond, false)
		}
		m.check()
		a = m.replicas[0].tracker.Ask(m.t.Context(), Question{Key: web, Generation: m.newest})
		if a.State == InForce && a.Proxies.Connected == len(m.clients) || a.State == Unknown && m.ended && len(a.Owing) == 0 {
			return
		}
	}
	m.t.Fatalf("in the end generation %d is not in force: %+v", m.newest, a)
}

func (m *mesh) stop() {
	for _, c := range m.clients {
		c.leave()
	}
	for _, r := range m.replicas {
		if r.alive {
			r.end()
		}
	}
}

// member is one replica.
type member struct {
	mesh       *mesh
	name       string
	alive      bool
	silent     bool // it does not answer other replicas
	generation int64
	world      *fake
	translator *xdstest.Translator
	server     *xds.Server
	grpc       *grpc.Server
	served     sync.WaitGroup
	tracker    *Tracker
	address    string
}

func (r *member) String() string { return r.name }

// start starts a process, which reads the newest generation or one before.
func (r *member) start() {
	t := r.mesh.t
	r.world, r.translator = emptyFake(), xdstest.NewTranslator()
	r.translator.Refers.Store(true)
	r.translator.Still.Store(true)
	r.server = xds.New(xds.Options{Translator: r.translator, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	r.tracker = New(Options{Streams: r.server, Archive: archive.New(archive.Options{}), World: r.world, Judge: r.world, Replicas: r,
		Name: r.name, Clock: r.mesh})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	r.address = l.Addr().String()
	r.grpc = grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec()))
	r.server.Register(r.grpc)
	r.served.Go(func() { _ = r.grpc.Serve(r.server.Listen(l)) })
	r.alive, r.generation = true, max(1, r.mesh.newest-int64(rapid.IntRange(0, 1).Draw(t, "lag")))
	o := version(r.generation, "a")
	r.world.objects[web] = o
	r.publish(true, []kinds.Change{change(o)}, fmt.Sprintf("cds a=%d", r.generation), "cds b=1", "eds a=1", "eds b=1")
}

// end ends the process. Its clients lose their streams. If there is no other one, nobody knows them.
func (r *member) end() {
	r.alive, r.mesh.ended = false, true
	r.server.Shutdown()
	r.grpc.Stop()
	r.served.Wait()
	others := 0
	for _, x := range r.mesh.replicas {
		if x.alive {
			others++
		}
	}
	for _, c := range r.mesh.clients {
		if c.replica == r {
			c.leave()
		}
		c.unknown = c.unknown || others == 0
	}
}

func (r *member) commit(generation int64) {
	r.generation = generation
	o := version(generation, "a")
	r.publish(true, []kinds.Change{change(o)}, fmt.Sprintf("cds a=%d", generation))
}

func (r *member) publish(full bool, batch []kinds.Change, edits ...string) {
	r.tracker.Begin(batch)
	for _, c := range batch {
		r.world.objects[c.Key] = c.Object
	}
	s := r.translator.Publish(full, edits...)
	r.tracker.Commit(s, batch, r.mesh.now)
	r.server.Publish(s)
}

// Affected implements Replicas.
func (*member) Affected(*snapshot.Snapshot) bool { return true }

// Members implements Replicas.
func (r *member) Members() (list []replicas.Member) {
	for _, x := range r.mesh.replicas {
		if x != r && x.alive {
			list = append(list, replicas.Member{Peer: replicas.Peer{Name: x.name}, Ready: true})
		}
	}
	return list
}

// AskMembers implements Replicas.
func (r *member) AskMembers(_ context.Context, question string) (list []replicas.Answer) {
	_, query, _ := strings.Cut(question, "?")
	values, err := url.ParseQuery(query)
	must.Succeed(r.mesh.t, err)
	for _, x := range r.mesh.replicas {
		if x == r || !x.alive {
			continue
		}
		a := replicas.Answer{Peer: replicas.Peer{Name: x.name}}
		if a.Err = errors.New("it does not answer"); !x.silent {
			a.JSON, a.Err = json.Marshal(x.tracker.OwnOf(asked(web, values)))
		}
		list = append(list, a)
	}
	return list
}

// client is a proxy. It serves the version of its cluster for which it has an assignment.
type client struct {
	mesh     *mesh
	pod      string
	replica  *member // the last one
	have     int64   // version of the cluster; 0 before the first
	active   int64   // version that serves
	unknown  bool    // no replica was there when it was last connected, and no stream of it has begun since
	versions map[string]string
	assigned map[string]string
	stream   discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	in       chan *discoveryv3.DeltaDiscoveryResponse
	close    func()
}

// connect begins a stream with what the client has.
func (c *client) connect(r *member) {
	t := c.mesh.t
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	must.Succeed(t, err)
	in := make(chan *discoveryv3.DeltaDiscoveryResponse, 1000)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(in)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			in <- m
		}
	})
	c.replica, c.stream, c.in = r, stream, in
	c.close = func() {
		cancel()
		reading.Wait()
		_ = conn.Close()
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node(c.pod), TypeUrl: envoy.ClusterType, InitialResourceVersions: c.versions})
	if c.have > 0 {
		c.send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: []string{"a", "b"}, InitialResourceVersions: c.assigned,
		})
	}
}

// leave ends the stream.
func (c *client) leave() {
	if c.stream != nil {
		c.close()
		c.stream = nil
	}
}

func (c *client) send(m *discoveryv3.DeltaDiscoveryRequest) {
	_ = c.stream.Send(m) // the stream may have ended
}

// take takes a response, if one comes in time.
func (c *client) take(within time.Duration, rejects bool) {
	if c.stream == nil {
		return
	}
	var m *discoveryv3.DeltaDiscoveryResponse
	select {
	case m = <-c.in:
	case <-time.After(within):
	}
	if m == nil {
		return
	}
	c.unknown = false
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}
	if rejects && c.have > 0 {
		answer.ErrorDetail = &rpcstatus.Status{Code: 13, Message: "no"}
		c.send(answer)
		return
	}
	for _, x := range m.Resources {
		switch {
		case m.TypeUrl == envoy.EndpointType:
			if c.assigned == nil {
				c.assigned = map[string]string{}
			}
			if c.assigned[x.Name] = x.Version; x.Name == "a" {
				c.active = c.have
			}
		case x.Name == "a":
			first := c.have == 0
			own, _, _ := strings.Cut(x.Version, ".")
			c.have, _ = strconv.ParseInt(own, 10, 64)
			if first {
				defer c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: []string{"a", "b"}})
			}
			fallthrough
		default:
			c.versions[x.Name] = x.Version
		}
	}
	c.send(answer)
}
