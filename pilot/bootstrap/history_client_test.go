package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Modes of clients.
const (
	whole   = "state of the world"
	delta   = "delta"
	divided = "delta, virtual hosts by themselves"
)

// modelEnvoy does as Envoy does, and decodes what it is sent: it subscribes to clusters, to the endpoints of those that
// it has, to listeners once the clusters are warm, to the routes that these name, and to virtual hosts once a route
// configuration says so. Its goroutine alone touches it but for what mu guards.
type modelEnvoy struct {
	h    *history
	ads  discoveryv3.AggregatedDiscoveryServiceClient
	mode string
	who  string
	node *corev3.Node
	r    *rand.Rand
	// rejecting: there was something that it did not take. salt selects what it does not take now, which is mu's; 0: it
	// takes everything.
	rejecting bool
	salt      uint64

	orders chan order
	done   chan struct{}

	// Of one stream.
	ctx      context.Context
	send     func(proto.Message) error
	asked    map[string]bool           // types
	answered map[string]bool           // types
	nonce    map[string]string         // of the last response, by type
	owed     map[string]map[string]int // by type and name: how often it may come though nothing is new
	left     map[string]bool           // type and name: let go of on this stream, so that it may have been on its way
	resumed  bool                      // it had an earlier stream

	mu      sync.Mutex
	have    map[string]map[string]*held // by type and name: what it takes itself to have
	live    map[string]map[string]*held // virtual hosts by route configuration: those that serve
	subs    map[string]map[string]bool  // of assignments and route configurations
	version map[string]string           // by type: of the last response that it took whole
	warming map[string]bool             // clusters without the assignment that they wait for
	active  map[string]*held            // by cluster: the version that serves
	log     []string
}

// held is one resource as it came.
type held struct {
	*content
	version string // delta
	bad     bool   // this client does not take it
}

// order is a command to a client.
type order struct {
	stall   time.Duration
	connect bool
}

func newModelEnvoy(ads discoveryv3.AggregatedDiscoveryServiceClient, h *history,
	who, mode string, node *corev3.Node, seed, salt uint64) *modelEnvoy {
	return &modelEnvoy{
		ads: ads, h: h, mode: mode, who: who, node: node, r: rand.New(rand.NewPCG(seed, 1)),
		rejecting: salt != 0, salt: salt, orders: make(chan order, 100), done: make(chan struct{}),
		have: map[string]map[string]*held{envoy.ClusterType: {}, envoy.EndpointType: {},
			envoy.ListenerType: {}, envoy.RouteType: {}, envoy.VirtualHostType: {}},
		live: map[string]map[string]*held{}, subs: map[string]map[string]bool{envoy.EndpointType: {}, envoy.RouteType: {}},
		version: map[string]string{}, warming: map[string]bool{}, active: map[string]*held{},
	}
}

func (c *modelEnvoy) String() string { return c.who + ", " + c.mode }

// note writes down what happens to the client, the last of it.
func (c *modelEnvoy) note(format string, args ...any) {
	c.log = append(c.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	if len(c.log) > 400 {
		c.log = slices.Delete(c.log, 0, 200)
	}
}

func (c *modelEnvoy) fail(format string, args ...any) {
	c.h.fail(fmt.Errorf("%v: %s\nwhat happened to it:\n%s", c, fmt.Sprintf(format, args...), strings.Join(c.log, "\n")))
}

// run holds one stream after the other until ctx ends.
func (c *modelEnvoy) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		if err := c.connect(ctx); err != nil && ctx.Err() == nil {
			if status.Code(err) == codes.Unavailable { // a machine so busy that a send takes its time counts as a reader that stalls
				continue
			}
			c.mu.Lock()
			c.fail("its stream ended: %v", err)
			c.mu.Unlock()
			return
		}
	}
}

var subscribedTypes = []string{envoy.ClusterType, envoy.EndpointType, envoy.ListenerType, envoy.RouteType, envoy.VirtualHostType}

// connect holds a stream until it has to begin another one.
func (c *modelEnvoy) connect(ctx context.Context) error {
	var stop context.CancelFunc
	c.ctx, stop = context.WithCancel(ctx)
	in, read := make(chan proto.Message), make(chan error, 1)
	recv, err := c.open()
	if err != nil {
		stop()
		return err
	}
	go func() {
		for {
			m, err := recv()
			if err == nil {
				select {
				case in <- m:
					continue
				case <-c.ctx.Done():
					err = c.ctx.Err()
				}
			}
			read <- err
			return
		}
	}()
	ended := false
	defer func() {
		stop()
		if !ended {
			<-read
		}
	}()
	if err := c.hello(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		select {
		case m := <-in:
			c.mu.Lock()
			err := c.take(m)
			c.mu.Unlock()
			for errors.Is(err, io.EOF) && !ended { // the reader gets what ended the stream
				select {
				case <-in:
				case err = <-read:
					ended = true
				}
			}
			if err != nil {
				return err
			}
			if chance(c.r, 8) {
				time.Sleep(time.Duration(c.r.IntN(20)) * time.Millisecond)
			}
		case o := <-c.orders:
			if o.connect {
				return nil
			}
			select {
			case <-time.After(o.stall):
			case <-ctx.Done():
			}
		case err := <-read:
			ended = true
			return err
		}
	}
}

func (c *modelEnvoy) open() (recv func() (proto.Message, error), err error) {
	if c.mode == whole {
		s, err := c.ads.StreamAggregatedResources(c.ctx)
		if err != nil {
			return nil, err
		}
		c.send = func(m proto.Message) error { return s.Send(m.(*discoveryv3.DiscoveryRequest)) }
		return func() (proto.Message, error) { return s.Recv() }, nil
	}
	s, err := c.ads.DeltaAggregatedResources(c.ctx)
	if err != nil {
		return nil, err
	}
	c.send = func(m proto.Message) error { return s.Send(m.(*discoveryv3.DeltaDiscoveryRequest)) }
	return func() (proto.Message, error) { return s.Recv() }, nil
}

// hello begins a stream: it asks for all that it had asked for before, in Envoy's order.
func (c *modelEnvoy) hello() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.asked
	c.note("connects")
	c.asked, c.answered, c.nonce = map[string]bool{}, map[string]bool{}, map[string]string{}
	c.owed, c.left = map[string]map[string]int{}, map[string]bool{}
	c.resumed = before != nil
	for _, t := range subscribedTypes {
		if t == envoy.ClusterType || before[t] && (c.subs[t] == nil || len(c.subs[t]) > 0) {
			if err := c.subscribe(t, slices.Sorted(maps.Keys(c.subs[t])), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *modelEnvoy) owe(typeURL, name string) {
	if c.owed[typeURL] == nil {
		c.owed[typeURL] = map[string]int{}
	}
	c.owed[typeURL][name]++
}

// subscribe asks for names more and less; state of the world names them all.
func (c *modelEnvoy) subscribe(typeURL string, add, remove []string) error {
	for _, name := range add {
		c.owe(typeURL, name)
	}
	for _, name := range remove {
		c.left[typeURL+name] = true
	}
	first := !c.asked[typeURL]
	c.asked[typeURL] = true
	c.note("subscribes to %s +%v -%v", short(typeURL), add, remove)
	if c.mode == whole {
		if c.nonce[typeURL] == "" {
			for name := range c.subs[typeURL] {
				c.owe(typeURL, name)
			}
		}
		return c.reply(typeURL, "")
	}
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL,
		ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove, Node: c.introduce()}
	if first {
		r.InitialResourceVersions = map[string]string{}
		for name, x := range c.have[typeURL] {
			r.InitialResourceVersions[name] = x.version // also of a virtual host that went with its route configuration
		}
		if c.subs[typeURL] == nil && len(r.InitialResourceVersions) > 0 && chance(c.r, 2) && typeURL != envoy.VirtualHostType {
			r.ResourceNamesSubscribe = []string{"*"}
		}
	}
	return c.send(r)
}

// introduce sends the node, with the first request of a stream.
func (c *modelEnvoy) introduce() *corev3.Node {
	if len(c.asked) == 1 && len(c.nonce) == 0 {
		return c.node
	}
	return nil
}

// reply acknowledges or rejects the last response of a type; with state of the world it repeats what is subscribed
// to.
func (c *modelEnvoy) reply(typeURL, fault string) error {
	var detail *rpcstatus.Status
	if fault != "" {
		detail = &rpcstatus.Status{Code: 13, Message: fault}
		c.note("rejects %s: %s", short(typeURL), fault)
	}
	if c.mode == whole {
		return c.send(&discoveryv3.DiscoveryRequest{
			TypeUrl: typeURL, ResourceNames: slices.Sorted(maps.Keys(c.subs[typeURL])),
			ResponseNonce: c.nonce[typeURL], VersionInfo: c.version[typeURL], ErrorDetail: detail, Node: c.introduce(),
		})
	}
	return c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: c.nonce[typeURL], ErrorDetail: detail})
}
