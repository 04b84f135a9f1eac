package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// change is a change of one type. A change without a type says that the first state is complete.
type change struct {
	TypeURL   string
	Resources []resource
	Removed   []string
}

// resource is the `resources` field of a DeltaDiscoveryResponse. It begins with the field of a DiscoveryResponse: see
// whole.
type resource struct {
	Name  string
	Delta []byte
}

// newResource encodes a resource: Resource { resource (2): Any { type_url (1) value (2) } name (3) version (1) }.
func newResource(typeURL, name string, body []byte) resource {
	whole := wrap(2, append(wrap(1, []byte(typeURL)), wrap(2, body)...))
	return resource{name, wrap(2, append(append(whole, wrap(3, []byte(name))...), wrap(1, []byte("1"))...))}
}

// whole returns the Any, in a field with the number that both protocols use.
func (r resource) whole() []byte {
	inner, _ := protowire.ConsumeBytes(r.Delta[1:]) // after the tag
	_, _, n := protowire.ConsumeField(inner)
	return inner[:n:n]
}

// feeder holds the resources that one sidecar received, and passes changes on.
type feeder struct {
	split bool

	mu   sync.Mutex
	held map[string]map[string][]byte // bodies by type and name
	to   map[*gob.Encoder]struct{}
}

func newFeeder(split bool) *feeder {
	return &feeder{split: split, held: map[string]map[string][]byte{}, to: map[*gob.Encoder]struct{}{}}
}

// feed writes the first state, and from then on changes, until writing fails.
func (f *feeder) feed(to io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := gob.NewEncoder(to)
	f.to[e] = struct{}{}
	for typeURL, of := range f.held {
		c := change{TypeURL: typeURL}
		for name, body := range of {
			c.Resources = append(c.Resources, newResource(typeURL, name, body))
		}
		f.hand(e, c)
	}
	f.hand(e, change{})
}

func (f *feeder) hand(to *gob.Encoder, c change) {
	if err := to.Encode(c); err != nil {
		delete(f.to, to)
	}
}

// take applies a response of the control plane and passes its changes on.
func (f *feeder) take(message []byte) error {
	var r discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(message, &r); err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	main, hosts := change{TypeURL: r.TypeUrl, Removed: r.RemovedResources}, change{TypeURL: load.VirtualHosts.URL()}
	for _, x := range r.Resources {
		body := x.GetResource().GetValue()
		if f.split && r.TypeUrl == load.Routes.URL() {
			body = f.splitRoutes(x.Name, body, &hosts)
		}
		f.put(&main, x.Name, body)
	}
	for _, name := range r.RemovedResources {
		delete(f.held[r.TypeUrl], name)
	}
	for _, c := range []change{main, hosts} { // a virtual host before its RouteConfiguration would be lost
		if len(c.Resources)+len(c.Removed) > 0 {
			for to := range f.to {
				f.hand(to, c)
			}
		}
	}
	return nil
}

// splitRoutes returns a RouteConfiguration without its virtual hosts (2) and with vhds (9) { config_source (1) { ads
// (3) {} resource_api_version (6): V3 } }.
func (f *feeder) splitRoutes(name string, body []byte, hosts *change) (rest []byte) {
	there := map[string]bool{}
	for len(body) > 0 {
		number, wireType, n := protowire.ConsumeTag(body)
		m := protowire.ConsumeFieldValue(number, wireType, body[max(n, 0):])
		if n < 0 || m < 0 {
			break
		}
		if number == 2 {
			host, _ := protowire.ConsumeBytes(body[n:])
			_, _, tag := protowire.ConsumeTag(host) // VirtualHost.name is the first field
			first, _ := protowire.ConsumeString(host[tag:])
			full := name + "/" + first
			there[full] = true
			f.put(hosts, full, host)
		} else {
			rest = append(rest, body[:n+m]...)
		}
		body = body[n+m:]
	}
	for full := range f.held[hosts.TypeURL] {
		if !there[full] && strings.HasPrefix(full, name+"/") {
			delete(f.held[hosts.TypeURL], full)
			hosts.Removed = append(hosts.Removed, full)
		}
	}
	return append(rest, wrap(9, wrap(1, append(wrap(3, nil), 6<<3, 2)))...)
}

// put keeps a resource, and adds it to a change if its body differs.
func (f *feeder) put(to *change, name string, body []byte) {
	of := f.held[to.TypeURL]
	if old, ok := of[name]; ok && same(to.TypeURL, old, body) {
		return
	}
	if of == nil {
		of = map[string][]byte{}
		f.held[to.TypeURL] = of
	}
	of[name] = slices.Clone(body)
	to.Resources = append(to.Resources, newResource(to.TypeURL, name, body))
}

// same reports whether two bodies are the same message. Entries of maps may have any order.
func same(typeURL string, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := newMessage(typeURL), newMessage(typeURL)
	return x != nil && proto.Unmarshal(a, x) == nil && proto.Unmarshal(b, y) == nil && proto.Equal(x, y)
}

func newMessage(typeURL string) proto.Message {
	switch typeURL {
	case load.Clusters.URL():
		return &clusterv3.Cluster{}
	case load.Endpoints.URL():
		return &endpointv3.ClusterLoadAssignment{}
	case load.Listeners.URL():
		return &listenerv3.Listener{}
	case load.Routes.URL():
		return &routev3.RouteConfiguration{}
	case load.VirtualHosts.URL():
		return &routev3.VirtualHost{}
	default:
		return nil
	}
}

func wrap(number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}
