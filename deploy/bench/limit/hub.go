package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	routesURL = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	hostsURL  = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// hub holds every resource of every type as it stands in responses.
type hub struct {
	split bool

	mu        sync.Mutex
	resources map[string]map[string]encoded
	whole     map[string]encoded // by type: all its resources in one piece, made when wanted
	streams   map[*stream]struct{}
}

// encoded are `resources` fields, of a DeltaDiscoveryResponse and of a DiscoveryResponse.
type encoded struct{ delta, sotw []byte }

func (e *encoded) add(x encoded) {
	e.delta, e.sotw = append(e.delta, x.delta...), append(e.sotw, x.sotw...)
}

// push is what a response holds.
type push struct {
	typeURL string
	body    encoded
	removed []string
}

// stream is one client. Its queue has no bound: the bytes in it are everybody's.
type stream struct {
	sotw       bool
	subscribed map[string]map[string]struct{} // by type: names, none of a type that is subscribed to as a whole
	queue      []push
	wake       chan struct{}
}

func newStream(sotw bool) *stream {
	return &stream{sotw: sotw, subscribed: map[string]map[string]struct{}{}, wake: make(chan struct{}, 1)}
}

func newHub(split bool) *hub {
	return &hub{split: split, resources: map[string]map[string]encoded{}, whole: map[string]encoded{}, streams: map[*stream]struct{}{}}
}

// take keeps what a response of the control plane changes and queues that for all clients.
func (h *hub) take(message []byte) error {
	var r discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(message, &r); err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	main, hosts := push{typeURL: r.TypeUrl, removed: r.RemovedResources}, push{typeURL: hostsURL}
	for _, x := range r.Resources {
		body := x.GetResource().GetValue()
		if r.TypeUrl == routesURL && h.split {
			body = h.splitRoutes(x.Name, body, &hosts)
		}
		h.put(&main, x.Name, body)
	}
	for _, name := range r.RemovedResources {
		delete(h.resources[r.TypeUrl], name)
	}
	for _, p := range []push{main, hosts} { // a virtual host that comes before its RouteConfiguration is lost
		if len(p.body.delta)+len(p.removed) == 0 {
			continue
		}
		delete(h.whole, p.typeURL)
		for s := range h.streams {
			names, ok := s.subscribed[p.typeURL]
			switch {
			case !ok:
			case s.sotw && len(names) == 0: // absence means deletion
				s.add(push{typeURL: p.typeURL, body: h.all(p.typeURL)})
			case !s.sotw || len(p.body.sotw) > 0:
				s.add(p)
			}
		}
	}
	return nil
}

// splitRoutes gives a RouteConfiguration without its virtual hosts (2) and with vhds (9) { config_source (1) { ads (3) {} resource_api_version (6): V3 } }.
func (h *hub) splitRoutes(name string, body []byte, hosts *push) (rest []byte) {
	there := map[string]bool{}
	for len(body) > 0 {
		number, wireType, n := protowire.ConsumeTag(body)
		m := protowire.ConsumeFieldValue(number, wireType, body[max(n, 0):])
		if n < 0 || m < 0 {
			break
		}
		if number == 2 {
			host, _ := protowire.ConsumeBytes(body[n:])
			_, _, tag := protowire.ConsumeTag(host) // VirtualHost.name is its first field
			first, _ := protowire.ConsumeString(host[tag:])
			full := name + "/" + first
			there[full] = true
			h.put(hosts, full, host)
		} else {
			rest = append(rest, body[:n+m]...)
		}
		body = body[n+m:]
	}
	for full := range h.resources[hostsURL] {
		if !there[full] && len(full) > len(name) && full[:len(name)+1] == name+"/" {
			delete(h.resources[hostsURL], full)
			hosts.removed = append(hosts.removed, full)
		}
	}
	return append(rest, wrap(9, wrap(1, append(wrap(3, nil), 6<<3, 2)))...)
}

// put keeps a resource and adds it to a push, if it is another than before.
func (h *hub) put(to *push, name string, body []byte) {
	any := append(wrap(1, []byte(to.typeURL)), wrap(2, body)...)
	x := encoded{sotw: wrap(2, any), delta: wrap(2, append(wrap(2, any), append(wrap(3, []byte(name)), wrap(1, []byte("1"))...)...))}
	of := h.resources[to.typeURL]
	if bytes.Equal(of[name].sotw, x.sotw) {
		return
	}
	if of == nil {
		of = map[string]encoded{}
		h.resources[to.typeURL] = of
	}
	of[name] = x
	to.body.add(x)
}

// all gives a type in one piece.
func (h *hub) all(typeURL string) encoded {
	body, ok := h.whole[typeURL]
	if !ok {
		of := h.resources[typeURL]
		for _, name := range slices.Sorted(maps.Keys(of)) {
			body.add(of[name])
		}
		h.whole[typeURL] = body
	}
	return body
}

// subscribe queues what a client asks for: a type as a whole, or the names of it that it had not asked for before. Everything else acknowledges something.
// Gone are names that it does not want any more; in the other protocol those that are left out.
func (h *hub) subscribe(s *stream, typeURL string, names, gone []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, again := s.subscribed[typeURL]
	if !again {
		known = map[string]struct{}{}
		s.subscribed[typeURL] = known
		h.streams[s] = struct{}{}
	}
	for _, name := range gone {
		delete(known, name)
	}
	var added []string
	for _, name := range names {
		if _, ok := known[name]; !ok {
			known[name] = struct{}{}
			added = append(added, name)
		}
	}
	if s.sotw && len(known) > len(names) {
		maps.DeleteFunc(known, func(name string, _ struct{}) bool { return !slices.Contains(names, name) })
	}
	if again && len(added) == 0 {
		return
	}
	of := h.resources[typeURL]
	if len(names) == 0 || len(added) >= len(of) {
		s.add(push{typeURL: typeURL, body: h.all(typeURL)})
		return
	}
	p := push{typeURL: typeURL}
	for _, name := range added {
		p.body.add(of[name])
	}
	s.add(p)
}

func (s *stream) add(p push) {
	s.queue = append(s.queue, p)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// serve fans out to a client; request receives what it asks for next.
func (h *hub) serve(to grpc.ServerStream, sotw bool, request func() (typeURL string, names, gone []string, err error)) error {
	s := newStream(sotw)
	defer func() { h.mu.Lock(); delete(h.streams, s); h.mu.Unlock() }()
	go func() {
		for {
			typeURL, names, gone, err := request()
			if err != nil {
				return
			}
			h.subscribe(s, typeURL, names, gone)
		}
	}()
	for nonce := 1; ; {
		select {
		case <-to.Context().Done():
			return nil
		case <-s.wake:
		}
		h.mu.Lock()
		queue := s.queue
		s.queue = nil
		h.mu.Unlock()
		for _, p := range queue {
			head, body := append(wrap(4, []byte(p.typeURL)), wrap(5, strconv.AppendInt(nil, int64(nonce), 10))...), p.body.delta
			if sotw {
				head, body = append(head, wrap(1, []byte("1"))...), p.body.sotw
			} else {
				for _, name := range p.removed {
					head = append(head, wrap(6, []byte(name))...)
				}
			}
			if err := to.SendMsg(mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(body)}); err != nil {
				return err
			}
			nonce++
		}
	}
}

// delta serves DeltaAggregatedResources.
func (h *hub) delta(to grpc.ServerStream) error {
	return h.serve(to, false, func() (string, []string, []string, error) {
		r := &discoveryv3.DeltaDiscoveryRequest{}
		err := to.RecvMsg(r)
		return r.TypeUrl, r.ResourceNamesSubscribe, r.ResourceNamesUnsubscribe, err
	})
}

// sotw serves StreamAggregatedResources.
func (h *hub) sotw(to grpc.ServerStream) error {
	return h.serve(to, true, func() (string, []string, []string, error) {
		r := &discoveryv3.DiscoveryRequest{}
		err := to.RecvMsg(r)
		return r.TypeUrl, r.ResourceNames, nil, err
	})
}

func wrap(number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}
