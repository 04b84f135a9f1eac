package xds

import (
	"context"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// Client is a snapshot of one connected stream.
type Client struct {
	ID        string // POD.NAMESPACE-NUMBER
	Proxy     *node.Proxy
	Address   string // address of the peer
	Peer      identity.Peer
	Connected time.Time
	Delta     bool
	Types     map[string]session.TypeStatus // by type URL
	// Waits says what an Envoy that starts waits for until it requests listeners, or why a proxy is refused secrets.
	Waits string
}

// inspection bounds how long introspection waits for busy streams.
const inspection = 5 * time.Second

// Clients returns the connected streams by ID. A stream that does not answer in time has no types.
func (s *Server) Clients() []Client {
	ctx, cancel := context.WithTimeout(context.Background(), inspection)
	defer cancel()
	streams := s.streams()
	types, waits, ran := make(
		[]map[string]session.TypeStatus, len(streams),
	), make([]string, len(streams)), make([]<-chan struct{}, len(streams))
	for i, c := range streams { // concurrently, so that one slow stream does not delay others
		ran[i] = c.post(func(x *session.Session) { types[i], waits[i] = x.Status(), c.waits() })
	}
	var list []Client
	for i, c := range streams {
		client := Client{ID: c.id, Proxy: c.proxy, Address: c.remote, Peer: c.peer, Connected: c.connected, Delta: c.delta}
		if c.await(ctx, ran[i]) {
			client.Types, client.Waits = types[i], waits[i]
		}
		list = append(list, client)
	}
	return list
}

// Dump returns the resources of a type that a proxy was sent, by name, without the contents of secrets. id is the ID of
// the proxy or of one of its streams. It returns false if the proxy is not connected or never requested the type.
func (s *Server) Dump(id, typeURL string) ([]*envoy.Resource, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), inspection)
	defer cancel()
	var newest *conn
	for _, c := range s.streams() {
		if c.id == id || c.proxy.ID == id {
			newest = c
		}
	}
	if newest == nil {
		return nil, false
	}
	type dump struct {
		resources []*envoy.Resource
		found     bool
	}
	answered := make(chan dump, 1)
	if !newest.call(ctx, func(x *session.Session) {
		answered <- dump{x.Resources(typeURL), x.StatusOf(typeURL) != nil}
	}) {
		return nil, false
	}
	d := <-answered
	for i, r := range d.resources {
		d.resources[i] = r.Redacted()
	}
	return d.resources, d.found
}

// Disconnect ends the streams of a proxy, or the stream with that ID, with the status of a shutdown. It reports whether
// there was one.
func (s *Server) Disconnect(id string) bool {
	found := false
	for _, c := range s.streams() {
		if c.id == id || c.proxy.ID == id {
			c.end(errShutdown())
			found = true
		}
	}
	return found
}
