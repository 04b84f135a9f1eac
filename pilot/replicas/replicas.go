package replicas

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// World has the endpoints of the control plane's own Service: an *ingest.World.
type World interface {
	// Snapshot returns the last snapshot, or nil before the first.
	Snapshot() *snapshot.Snapshot
}

// Caller authenticates connections to other replicas.
type Caller interface {
	// TLS returns a client configuration with the certificate of this replica that accepts only control planes of this
	// mesh. It fails if this replica has no certificate.
	TLS(ctx context.Context) (*tls.Config, error)
}

// Options configure Replicas.
type Options struct {
	Name    string // name of this replica's Pod
	Service string // host of the control plane's own Service
	Cluster string // ID of the server's own cluster
	World   World
	Caller  Caller
	Logger  *slog.Logger
}

// Replicas are the other replicas of this control plane. The methods are safe for concurrent use.
type Replicas struct {
	o     Options
	slots chan struct{} // bounds concurrent questions

	timeout time.Duration // timeout of a question to one peer
	size    int           // largest answer in bytes
}

// securePort is the TLS port of a control plane's Service for proxies and replicas.
const securePort = 15012

// Bounds of questions.
const (
	maxPeers   = 100 // peers of one question
	maxAtOnce  = 8   // concurrent questions to peers
	maxAnswer  = 32 << 20
	maxTime    = 2 * time.Second
	maxMessage = 300 // bytes of an error
)

// New returns the Replicas of a server.
func New(o Options) *Replicas {
	return &Replicas{o: o, slots: make(chan struct{}, maxAtOnce), timeout: maxTime, size: maxAnswer}
}

// Peer is one of the other replicas.
type Peer struct {
	Name    string // name of its Pod, or its address if the Pod is unknown
	Address string // host:port of its secure port
}

// Member is one of the other replicas. It may not be ready.
type Member struct {
	Peer
	Ready bool
}

// Peers returns the other ready replicas, sorted by name. It has one address of a replica, which may have one of each
// IP family.
func (r *Replicas) Peers() []Peer {
	return peersOf(lists.Filter(r.Members(), func(m Member) bool { return m.Ready }))
}

func peersOf(list []Member) []Peer { return lists.Map(list, func(m Member) Peer { return m.Peer }) }

// Affected reports whether a snapshot may have other members than the one before.
func (r *Replicas) Affected(s *snapshot.Snapshot) bool {
	return s.Revision == 1 || slices.ContainsFunc(s.Diff.Endpoints, func(k registry.ServiceKey) bool { return k.Host == r.o.Service }) ||
		slices.ContainsFunc(s.Diff.Services, func(c snapshot.ServiceChange) bool { return cmp.Or(c.New, c.Old).Host == r.o.Service })
}

// Members returns the other replicas, ready or not, sorted by name, with one address of each.
func (r *Replicas) Members() []Member {
	s := r.o.World.Snapshot()
	if s == nil {
		return nil
	}
	var members []Member
	for svc := range s.ServicesByHost(r.o.Service) {
		i := slices.IndexFunc(svc.Ports, func(p registry.Port) bool { return p.Number == securePort })
		endpoints := s.Endpoints(svc.Key())
		if i < 0 || endpoints == nil {
			continue
		}
		for _, e := range endpoints.List {
			if e.ServicePort != svc.Ports[i].Name || e.Cluster != r.o.Cluster || e.Health == registry.Draining {
				continue
			}
			m := Member{Peer: Peer{Address: net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))}, Ready: e.Health == registry.Healthy}
			if w := s.WorkloadByAddress(s.ClusterKey(e.Cluster), e.Address); w != nil {
				m.Name = w.Name
			}
			if m.Name = cmp.Or(m.Name, m.Address); m.Name != r.o.Name {
				members = append(members, m)
			}
		}
	}
	rank := map[bool]int{true: 0, false: 1} // of a replica with several addresses, a ready one comes first
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), rank[a.Ready]-rank[b.Ready], cmp.Compare(a.Address, b.Address))
	})
	return slices.CompactFunc(members, func(a, b Member) bool { return a.Name == b.Name })
}

// Answer is the answer of one peer.
type Answer struct {
	Peer
	Version string          // version of the peer; empty if it did not answer
	JSON    json.RawMessage // valid JSON unless Err is set
	Err     error           // why there is no answer
}

// Ask asks all peers for a debug page with its query, such as pushes?limit=5. It returns an Answer for each peer,
// sorted by name.
func (r *Replicas) Ask(ctx context.Context, question string) []Answer {
	return r.askAll(ctx, r.Peers(), question)
}

// AskMembers is Ask for all members, because one that is not ready may still have streams. It leaves out the ones that
// are not ready and refuse connections: no process serves there.
func (r *Replicas) AskMembers(ctx context.Context, question string) []Answer {
	members := r.Members()
	ready := map[string]bool{}
	for _, m := range members {
		ready[m.Address] = m.Ready
	}
	return slices.DeleteFunc(r.askAll(ctx, peersOf(members), question), func(a Answer) bool {
		return a.Err != nil && !ready[a.Address] && refuses(ctx, a.Address)
	})
}

// refuses reports whether no process listens at an address.
func refuses(ctx context.Context, address string) bool {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// askAll asks a list of peers.
func (r *Replicas) askAll(ctx context.Context, peers []Peer, question string) []Answer {
	if len(peers) == 0 {
		return nil
	}
	config, err := r.o.Caller.TLS(ctx)
	if err != nil {
		err = fmt.Errorf("this replica cannot prove to others who it is: %w", err)
	}
	answers := make([]Answer, len(peers))
	var all sync.WaitGroup
	for i, p := range peers {
		answers[i] = Answer{Peer: p, Err: err}
		if err == nil && i >= maxPeers {
			answers[i].Err = fmt.Errorf("at most %d replicas are asked", maxPeers)
		}
		if answers[i].Err != nil {
			continue
		}
		all.Add(1)
		safe.Go(r.o.Logger, "question to a replica", func() {
			defer all.Done()
			answers[i].Err = errors.New("failed to ask it") // remains if a panic ends the rest
			answers[i] = r.ask(ctx, config, p, question)
		})
	}
	all.Wait()
	// An endpoint without a Pod may be this replica itself, or one that has answered at another address.
	known := map[string]bool{r.o.Name: true}
	return slices.DeleteFunc(answers, func(a Answer) bool {
		again := known[a.Name]
		known[a.Name] = true
		return again
	})
}

// ask asks one peer.
func (r *Replicas) ask(ctx context.Context, config *tls.Config, p Peer, question string) Answer {
	a := Answer{Peer: p}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		a.Err = ctx.Err()
		return a
	}
	limit, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	response, err := r.exchange(limit, config, p.Address, question)
	if err != nil {
		a.Err = r.explain(err)
		return a
	}
	var by struct {
		ID   string
		Info struct {
			Version string `json:"version"`
		}
	}
	if json.Unmarshal([]byte(response.GetControlPlane().GetIdentifier()), &by) == nil {
		a.Name, a.Version = cmp.Or(by.ID, p.Name), by.Info.Version
	}
	pages := response.GetResources()
	switch {
	case len(pages) != 1:
		a.Err = fmt.Errorf("it answers with %d pages instead of one", len(pages))
	case !json.Valid(pages[0].GetValue()):
		a.Err = fmt.Errorf("its answer is no JSON: %.*q", maxMessage, pages[0].GetValue())
	default:
		a.JSON = pages[0].GetValue()
	}
	return a
}

// exchange sends a question over a new connection, and returns the response.
func (r *Replicas) exchange(ctx context.Context, config *tls.Config, address, question string) (*discoveryv3.DiscoveryResponse, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(r.size)), grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	// Recv returns the reason for a failed Send.
	_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: xds.DebugType, ResourceNames: []string{question}})
	return stream.Recv()
}

// explain returns an error of gRPC with a clear message.
func (r *Replicas) explain(err error) error {
	s := status.Convert(err)
	text := s.Message()
	if len(text) > maxMessage {
		text = text[:maxMessage] + "..."
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("it did not answer within %v", r.timeout)
	case codes.Unavailable:
		return fmt.Errorf("failed to reach it: %s", text)
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("it refuses this replica: %s", text)
	}
	return errors.New(text)
}
