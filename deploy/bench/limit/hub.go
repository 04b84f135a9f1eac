package main

import (
	"encoding/gob"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// hub holds every resource of every type as it is encoded in responses.
type hub struct {
	mu        sync.Mutex
	resources map[string]map[string]encoded
	whole     map[string]encoded // all resources of a type in one piece; made on demand
	streams   map[*stream]struct{}
}

// encoded holds `resources` fields of a DeltaDiscoveryResponse and of a DiscoveryResponse.
type encoded struct{ delta, sotw []byte }

// add does not copy the first piece, which may be large.
func (e *encoded) add(x encoded) {
	if e.delta == nil {
		*e = encoded{slices.Clip(x.delta), slices.Clip(x.sotw)}
		return
	}
	e.delta, e.sotw = append(e.delta, x.delta...), append(e.sotw, x.sotw...)
}

// push is the content of a response.
type push struct {
	typeURL string
	body    encoded
	removed []string
}

// stream is one client. Its queue has no bound, because all clients share its bytes.
type stream struct {
	sotw       bool
	subscribed map[string]map[string]struct{} // names by type; no names for a type without a list of names
	queue      []push
	wake       chan struct{}
	// named is a hash of the names in the last request, by type. It is owned by the reader of the stream.
	named map[string]uint64
	seed  maphash.Seed
}

func newStream(sotw bool) *stream {
	return &stream{sotw: sotw, subscribed: map[string]map[string]struct{}{}, wake: make(chan struct{}, 1), named: map[string]uint64{},
		seed: maphash.MakeSeed()}
}

func newHub() *hub {
	return &hub{resources: map[string]map[string]encoded{}, whole: map[string]encoded{}, streams: map[*stream]struct{}{}}
}

// fed applies the changes of a feeder until they end. It calls synced once the first state is complete.
func (h *hub) fed(from *gob.Decoder, synced func()) error {
	for {
		var c change
		if err := from.Decode(&c); err != nil {
			return fmt.Errorf("read what the feeder hands on: %w", err)
		}
		if c.TypeURL == "" {
			synced()
			continue
		}
		h.take(c)
	}
}

// take applies a change and queues it for all clients.
func (h *hub) take(c change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, of := push{typeURL: c.TypeURL, removed: c.Removed}, h.resources[c.TypeURL]
	if of == nil {
		of = map[string]encoded{}
		h.resources[c.TypeURL] = of
	}
	for _, r := range c.Resources {
		x := encoded{delta: r.Delta, sotw: r.whole()}
		of[r.Name] = x
		p.body.add(x)
	}
	for _, name := range c.Removed {
		delete(of, name)
	}
	delete(h.whole, c.TypeURL)
	for s := range h.streams {
		names, ok := s.subscribed[c.TypeURL]
		switch {
		case !ok:
		case s.sotw && len(names) == 0: // absence means deletion
			s.add(push{typeURL: c.TypeURL, body: h.all(c.TypeURL)})
		case !s.sotw || len(p.body.sotw) > 0:
			s.add(p)
		}
	}
}

// all returns all resources of a type in one piece.
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

// subscribe queues the resources that a client asks for: all of a type, or names that it did not ask for before. Other
// requests are acknowledgements. gone are names that the client no longer wants. In state of the world these are the
// names that it leaves out.
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

// serve sends pushes to a client.
func (h *hub) serve(to grpc.ServerStream, sotw bool) error {
	s := newStream(sotw)
	defer func() { h.mu.Lock(); delete(h.streams, s); h.mu.Unlock() }()
	go func() {
		for {
			var request []byte
			if err := to.RecvMsg(&request); err != nil {
				return
			}
			if typeURL, names, gone, asks := s.read(request); asks {
				h.subscribe(s, typeURL, names, gone)
			}
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
