package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// Three clients, one of each protocol and one that takes virtual hosts by themselves, live through the same random
// history: worlds that change, subscriptions, slow and lost streams, rejections. In the end all have what the
// translator says. On the way no route that they have names a cluster that they have not, and no changed cluster is
// left warming, and what a delta client rejected by itself does not come again.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, interner: wire.NewInterner(), fake: xdstest.NewTranslator(),
			nacks: rapid.Bool().Draw(t, "nacks"), versions: map[string]map[string]string{}}
		h.fake.Refers.Store(true)
		h.strict = h.nacks && rapid.Bool().Draw(t, "strict")
		h.tombstones = rapid.SampledFrom([]int{1, 4096}).Draw(t, "tombstones")
		h.publish(true, "cds c0=1", "cds in=1", "eds c0=1", "lds l0=1", "rds r0=c0.1", "vhds r0/h0=c0.1", "sds s0=1")
		clients := []*modelClient{newModelClient(h, false, false), newModelClient(h, true, false), newModelClient(h, true, true)}
		for _, c := range clients {
			c.finish()
		}
		h.interner.Few = 1
		for range rapid.IntRange(10, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1:
				h.publish(true, h.randomEdits()...)
			case 2:
				h.publish(false, fmt.Sprintf("eds c%d=%s", rapid.IntRange(0, 3).Draw(t, "eds"), h.version("")))
			case 3:
				typeURL := rapid.SampledFrom([]string{envoy.RouteType, envoy.SecretType}).Draw(t, "type")
				name := fmt.Sprintf("%s%d", map[string]string{envoy.RouteType: "r", envoy.SecretType: "s"}[typeURL],
					rapid.IntRange(0, 3).Draw(t, "name"))
				times := rapid.IntRange(1, 2).Draw(t, "times") // twice: it is let go of and taken back
				for _, c := range clients {
					for range times {
						c.toggle(typeURL, name)
					}
				}
			case 4:
				if i := rapid.IntRange(0, 2).Draw(t, "reconnect"); i > 0 {
					if rapid.IntRange(0, 3).Draw(t, "starts again") == 0 {
						clients[i].forget()
					}
					clients[i].connect()
				}
			default:
				c := clients[rapid.IntRange(0, 2).Draw(t, "client")]
				for range rapid.IntRange(1, 6).Draw(t, "often") {
					switch rapid.IntRange(0, 2).Draw(t, "who") {
					case 0:
						c.serve()
					case 1:
						c.receive()
					case 2:
						c.request()
					}
				}
			}
			for _, c := range clients {
				c.offer()
				c.checkDebts()
			}
		}
		for _, c := range clients {
			c.finish()
			c.checkDebts()
			if !h.strict {
				c.check()
			}
			if !h.nacks {
				c.checkPaid()
			}
		}
		if h.nacks {
			h.mend()
			for _, c := range clients {
				c.finish()
				c.check()
				c.checkDebts()
			}
		}
	})
}

type history struct {
	t          *rapid.T
	streams    uint32
	fake       *xdstest.Translator
	interner   *wire.Interner // of all streams, so that each finds what those before it shared
	nacks      bool
	tombstones int  // after which clients get their route configurations whole
	strict     bool // delta clients take nothing of a response of clusters or listeners that they reject
	pushes     []*Push
	worlds     []map[string]map[string]string // by revision, from 1
	touched    [][]touched                    // by revision, from 1
	versions   map[string]map[string]string
	counter    int
}

// version returns one that was not used before, a bad one, or one of few that come again and again.
func (h *history) version(prefix string) string {
	h.counter++
	switch k := rapid.IntRange(0, 5).Draw(h.t, "version"); {
	case k == 0 && h.nacks && prefix == "":
		return "bad"
	case k <= 2:
		return fmt.Sprintf("%s%d", prefix, k)
	}
	return fmt.Sprintf("%sv%d", prefix, h.counter)
}

func (h *history) randomEdits() []string {
	var edits []string
	clusters := map[string]bool{}
	for name := range h.versions["cds"] {
		clusters[name] = true
	}
	for range rapid.IntRange(0, 3).Draw(h.t, "edits") {
		name := fmt.Sprint(rapid.IntRange(0, 3).Draw(h.t, "name"))
		remove := rapid.Bool().Draw(h.t, "remove")
		switch rapid.IntRange(0, 6).Draw(h.t, "type") {
		case 6:
			if remove {
				edits = append(edits, "sds s"+name)
			} else {
				edits = append(edits, "sds s"+name+"="+h.version(""))
			}
		case 4, 5:
			name += "/h" + fmt.Sprint(rapid.IntRange(0, 2).Draw(h.t, "host"))
			switch {
			case remove:
				edits = append(edits, "vhds r"+name)
			case h.nacks && rapid.IntRange(0, 4).Draw(h.t, "bad") == 0:
				edits = append(edits, "vhds r"+name+"=bad")
			default:
				to := rapid.SampledFrom(slices.Sorted(maps.Keys(clusters))).Draw(h.t, "to")
				edits = append(edits, "vhds r"+name+"="+h.version(to+"."))
			}
		case 0:
			if remove && name != "0" {
				edits = append(edits, "cds c"+name)
				delete(clusters, "c"+name)
			} else {
				edits = append(edits, "cds c"+name+"="+h.version(""))
				clusters["c"+name] = true
			}
		case 1:
			if remove {
				edits = append(edits, "lds l"+name)
			} else {
				edits = append(edits, "lds l"+name+"="+h.version(""))
			}
		case 2:
			edits = append(edits, "eds c"+name+"="+h.version(""))
		case 3:
			if remove {
				edits = append(edits, "rds r"+name)
			} else {
				to := rapid.SampledFrom(slices.Sorted(maps.Keys(clusters))).Draw(h.t, "to")
				version := h.version(to + ".")
				if h.nacks && rapid.IntRange(0, 4).Draw(h.t, "bad") == 0 {
					version = "bad"
				}
				edits = append(edits, "rds r"+name+"="+version)
			}
		}
	}
	// A route that named a cluster which is gone goes elsewhere in the same snapshot.
	for _, short := range []string{"rds", "vhds"} {
		routes := maps.Clone(h.versions[short])
		if routes == nil {
			routes = map[string]string{}
		}
		for _, e := range edits {
			if rest, ok := strings.CutPrefix(e, short+" "); ok {
				name, version, _ := strings.Cut(rest, "=")
				routes[name] = version
			}
		}
		for _, name := range slices.Sorted(maps.Keys(routes)) {
			if to, _, ok := strings.Cut(routes[name], "."); ok && !clusters[to] {
				edits = append(edits, short+" "+name+"="+h.version("c0."))
			}
		}
	}
	return edits
}

func (h *history) publish(full bool, edits ...string) {
	for _, e := range edits {
		short, rest, _ := strings.Cut(e, " ")
		name, version, ok := strings.Cut(rest, "=")
		if h.versions[short] == nil {
			h.versions[short] = map[string]string{}
		}
		if ok {
			h.versions[short][name] = version
		} else {
			delete(h.versions[short], name)
		}
	}
	h.t.Logf("publish %v %v", full, edits)
	if len(h.pushes)%4 == 3 {
		h.interner.Forget()
	}
	h.record()
	h.pushes = append(h.pushes, NewPush(h.fake.Publish(full, edits...), time.Unix(0, 0)))
}

// modelClient does as Envoy does: it subscribes to all clusters and listeners, to the endpoints of the clusters that it
// has, and to some routes and secrets.
type modelClient struct {
	h     *history
	delta bool
	hosts bool // it takes virtual hosts by themselves
	wants bool // it has asked for them
	// virtual hosts by their route configuration: those that were taken, not dropped
	live    map[string]map[string]string
	session *Session
	names   *wire.Recent
	seen    int // pushes offered
	waiting *Push
	in      []*wire.Response
	out     []func()
	have    map[string]map[string]string
	subs    map[string]map[string]bool
	nonce   map[string]string
	warming map[string]bool
	active  map[string]string // by cluster: the version that serves, which warming does not end
	opened  map[string]bool
	// retaken are the routes that it unsubscribed from and subscribed to again, which the server may not have seen yet:
	// it cannot keep order for them.
	retaken map[string]bool
	refused map[refusal]bool  // delta: rejections that the server has read
	resumed bool              // it had an earlier stream
	first   map[string]uint64 // newest revision in the first response of each type on the stream
	got     map[string]bool   // types of which the server has read an answer on this stream
	rejects map[string]bool   // types of which the last answer that the server has read is a rejection
	fresh   map[string]bool   // type and name: subscribed to again, and not received since
	since   map[string]int    // type and name: newest revision when it was received then
}

// refusal is of a version of a resource, by itself.
type refusal struct{ typeURL, name, version string }

func (*modelClient) StandIn(string) *envoy.Resource { return nil }

func (*modelClient) MayHave(string) bool { return true }

func (c *modelClient) Panicked(typeURL string, err error) { c.h.t.Fatalf("panic: %v", err) }
func (c *modelClient) Suppressed(string) {
	if !c.h.nacks {
		c.h.t.Fatalf("suppressed something though nothing was rejected")
	}
}

func newModelClient(h *history, delta, hosts bool) *modelClient {
	c := &modelClient{h: h, delta: delta, hosts: hosts}
	c.forget()
	c.connect()
	return c
}

// forget makes the client start again without any configuration.
func (c *modelClient) forget() {
	c.fresh, c.since = map[string]bool{}, map[string]int{}
	c.live, c.have = map[string]map[string]string{}, map[string]map[string]string{}
	c.warming, c.active, c.retaken, c.wants = map[string]bool{}, map[string]string{}, map[string]bool{}, false
	c.subs = map[string]map[string]bool{envoy.EndpointType: {}, envoy.RouteType: {"r0": true}, envoy.SecretType: {"s0": true}}
	for _, t := range modelTypes {
		c.have[t] = map[string]string{}
		for name := range c.subs[t] {
			c.fresh[t+name] = len(c.h.worlds) > 1
		}
	}
}

var modelTypes = []string{envoy.ClusterType, envoy.EndpointType,
	envoy.ListenerType, envoy.RouteType, envoy.VirtualHostType, envoy.SecretType}

func show(r *wire.Response) []string {
	var list []string
	for i, x := range r.Resources {
		list = append(list, x.Name+"="+sentVersion(r, i))
	}
	return list
}

// connect begins a new stream; what was on its way is lost.
func (c *modelClient) connect() {
	c.session = newTestSession(c.h.fake, c, c.delta)
	c.h.streams++
	c.session.limits.Tombstones = c.h.tombstones
	c.session.divided, c.session.firstGeneration, c.session.interner, c.names = c.hosts, 1000*c.h.streams, c.h.interner, &wire.Recent{}
	c.first, c.rejects = map[string]uint64{}, map[string]bool{}
	c.got, c.resumed = map[string]bool{}, len(c.have[envoy.ClusterType]) > 0
	c.session.Expect(c.resumed, true, time.Unix(1, 0))
	c.session.Start(c.h.pushes[len(c.h.pushes)-1].Snapshot)
	c.seen, c.waiting, c.in, c.out = len(c.h.pushes), nil, nil, nil
	c.h.t.Logf("%v connects", c)
	c.nonce, c.opened, c.refused = map[string]string{}, map[string]bool{}, map[refusal]bool{}
	for _, t := range modelTypes {
		if envoy.TypeOf(t).Named && t != envoy.RouteType && len(c.subs[t]) == 0 || t == envoy.VirtualHostType && !c.wants {
			continue
		}
		c.subscribe(t, slices.Sorted(maps.Keys(c.subs[t])), nil, "")
	}
}

func (c *modelClient) offer() {
	for ; c.seen < len(c.h.pushes); c.seen++ {
		c.waiting = c.waiting.Merge(c.h.pushes[c.seen])
	}
}

// serve makes the server send one response.
func (c *modelClient) serve() bool {
	c.session.EndResuming() // the server may be so late that it takes a client for quiet whose requests it has not read
	r := c.session.Next()
	if r == nil && c.waiting != nil {
		c.session.Adopt(c.waiting)
		c.waiting = nil
		r = c.session.Next()
	}
	if r != nil {
		c.h.t.Logf("%v is sent %s %s: %v -%v", c, envoy.ShortType(r.TypeURL), r.Nonce, show(r), r.Removed)
		c.in = append(c.in, r)
		if _, later := c.first[r.TypeURL]; !later {
			c.first[r.TypeURL] = c.session.snapshot.Revision
		}
		for _, x := range r.Resources {
			if c.refused[refusal{r.TypeURL, x.Name, x.Version}] {
				c.h.t.Fatalf("%v: %s %s=%s comes again, which it rejected", c, envoy.ShortType(r.TypeURL), x.Name, x.Version)
			}
		}
	}
	return r != nil || c.waiting != nil
}

// request lets one request arrive.
func (c *modelClient) request() bool {
	if len(c.out) == 0 {
		return false
	}
	f := c.out[0]
	c.out = c.out[1:]
	c.h.t.Logf("%v: a request arrives", c)
	f()
	return true
}

func (c *modelClient) toggle(typeURL, name string) {
	if c.subs[typeURL][name] {
		delete(c.subs[typeURL], name)
		delete(c.have[typeURL], name)
		delete(c.live, name)
		c.subscribe(typeURL, nil, []string{name}, "")
		return
	}
	c.subs[typeURL][name] = true
	c.fresh[typeURL+name] = true
	c.retaken[name] = c.retaken[name] || !c.delta || len(c.in)+len(c.out) > 0
	c.subscribe(typeURL, []string{name}, nil, "")
}

// subscribe sends a request that adds and removes names and, with an error, rejects the last response.
func (c *modelClient) subscribe(typeURL string, add, remove []string, fault string) {
	c.send(typeURL, add, remove, c.nonce[typeURL], fault)
}

func (c *modelClient) send(typeURL string, add, remove []string, nonce, fault string) {
	var detail *rpcstatus.Status
	if fault != "" {
		detail = &rpcstatus.Status{Code: 13, Message: fault}
	}
	s, got, rejects := c.session, c.got, c.rejects
	answered := func() { got[typeURL], rejects[typeURL] = true, fault != "" }
	c.h.t.Logf("%v sends %s nonce=%s +%v -%v %v %s", c, envoy.ShortType(typeURL),
		nonce, add, remove, slices.Sorted(maps.Keys(c.subs[typeURL])), fault)
	if c.delta {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL,
			ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove, ErrorDetail: detail}
		if add == nil && remove == nil {
			r.ResponseNonce = nonce
		}
		if !c.opened[typeURL] {
			r.InitialResourceVersions = maps.Clone(c.have[typeURL])
		}
		c.opened[typeURL] = true
		names := c.names
		c.out = append(c.out, func() {
			if w := s.find(typeURL); w != nil && fault != "" {
				for _, d := range w.sent {
					if d.nonce == nonce && len(d.resources) == 1 {
						c.refused[refusal{typeURL, d.resources[0].Name, d.resources[0].Version}] = true
					}
				}
			}
			maps.DeleteFunc(c.refused, func(x refusal, _ bool) bool { return x.typeURL == typeURL && slices.Contains(remove, x.name) })
			if _, err := ask(s, r, names); err != nil {
				c.h.t.Fatal(err)
			}
			if r.ResponseNonce != "" {
				answered()
			}
		})
		return
	}
	r := &discoveryv3.DiscoveryRequest{TypeUrl: typeURL,
		ResourceNames: slices.Sorted(maps.Keys(c.subs[typeURL])), ResponseNonce: nonce, ErrorDetail: detail}
	if c.resumed && nonce == "" {
		r.VersionInfo = "of an earlier stream"
	}
	names := c.names
	c.out = append(c.out, func() {
		if _, err := ask(s, r, names); err != nil {
			c.h.t.Fatal(err)
		}
		if nonce != "" {
			answered()
		}
	})
}

// isBad reports a version that is bad, or of a route configuration with a bad virtual host.
func isBad(version string) bool { return strings.Contains(version, "bad") }

// takes reports whether the client takes a resource: route configurations can only be bad for their virtual hosts, and
// then a client takes them that has these apart.
func (c *modelClient) takes(typeURL string, r *envoy.Resource) bool {
	return !isBad(r.Version) || c.hosts && typeURL == envoy.RouteType
}

// receive takes one response. Of clusters and listeners what is bad is not applied, and the response rejected; the rest
// is applied. Of what is asked for by name nothing is applied, or what came before the bad one.
func (c *modelClient) receive() bool {
	if len(c.in) == 0 {
		return false
	}
	r := c.in[0]
	c.in = c.in[1:]
	have, whole := c.have[r.TypeURL], envoy.TypeOf(r.TypeURL).Complete
	c.h.t.Logf("%v takes %s %s: %v -%v", c, envoy.ShortType(r.TypeURL), r.Nonce, show(r), r.Removed)
	if r.TypeURL == envoy.VirtualHostType {
		c.takeHosts(r)
		return true
	}
	fault := ""
	present := map[string]bool{}
	taken := r.Resources
	nothing := func() bool {
		if whole {
			return c.h.strict && c.delta
		}
		return rapid.Bool().Draw(c.h.t, "nothing of it")
	}
	bad := func(x *envoy.Resource) bool { return !c.takes(r.TypeURL, x) && (whole || c.subs[r.TypeURL][x.Name]) }
	if slices.ContainsFunc(taken, bad) && nothing() {
		fault, taken = "a bad one is among them", nil
	}
	if fault != "" && whole {
		c.nonce[r.TypeURL] = r.Nonce
		c.send(r.TypeURL, nil, nil, r.Nonce, fault)
		return true
	}
	for i, x := range taken {
		present[x.Name] = true
		if !whole && !c.subs[r.TypeURL][x.Name] {
			continue
		}
		if !c.takes(r.TypeURL, x) {
			fault = "a bad one is among them"
			if !whole {
				break
			}
			continue
		}
		if r.TypeURL == envoy.ClusterType && have[x.Name] != x.Version {
			c.warming[x.Name] = true
		}
		if r.TypeURL == envoy.EndpointType {
			delete(c.warming, x.Name)
			c.active[x.Name] = c.have[envoy.ClusterType][x.Name]
		}
		have[x.Name] = sentVersion(r, i)
		if key := r.TypeURL + x.Name; c.fresh[key] {
			delete(c.fresh, key)
			c.since[key] = len(c.h.worlds)
		}
		if r.TypeURL == envoy.RouteType && own(have[x.Name]) != "head" {
			// as an Envoy does, which would else have hosts twice when they are in the route configuration again
			delete(c.live, x.Name)
		}
		if own(have[x.Name]) == "head" && !c.wants {
			c.wants = true
			c.subscribe(envoy.VirtualHostType, nil, nil, "")
		}
	}
	for _, name := range r.Removed {
		// a secret may go while the client that let go of it takes it back
		if _, ok := have[name]; !ok && !c.h.nacks && r.TypeURL != envoy.SecretType {
			c.h.t.Fatalf("delta: %s %s is removed and was not there", envoy.ShortType(r.TypeURL), name)
		}
		delete(have, name)
	}
	if !r.Delta && whole {
		for name := range have {
			if !present[name] {
				delete(have, name)
			}
		}
	}
	c.nonce[r.TypeURL] = r.Nonce
	c.send(r.TypeURL, nil, nil, r.Nonce, fault)
	if r.TypeURL == envoy.ClusterType {
		c.follow()
	}
	c.references()
	return true
}

// follow subscribes to the endpoints of exactly the clusters that it has.
func (c *modelClient) follow() {
	subs := c.subs[envoy.EndpointType]
	var add, remove []string
	for name := range c.have[envoy.ClusterType] {
		if !subs[name] {
			subs[name] = true
			add = append(add, name)
		}
	}
	for name := range subs {
		if _, ok := c.have[envoy.ClusterType][name]; !ok {
			delete(subs, name)
			delete(c.have[envoy.EndpointType], name)
			delete(c.warming, name)
			delete(c.active, name)
			remove = append(remove, name)
		}
	}
	if add != nil || remove != nil {
		c.subscribe(envoy.EndpointType, add, remove, "")
	}
}

func (c *modelClient) references() {
	if c.h.nacks {
		return
	}
	for _, hosts := range c.live {
		for name, version := range hosts {
			to, _, _ := strings.Cut(version, ".")
			if _, ok := c.have[envoy.ClusterType][to]; !ok && c.have[envoy.ClusterType]["in"] != "" {
				c.h.t.Fatalf("virtual host %s=%s names a cluster that is not there", name, version)
			}
		}
	}
	for name, version := range c.have[envoy.RouteType] {
		if c.retaken[name] {
			continue
		}
		if to, _, ok := strings.Cut(version, "."); ok {
			if _, ok := c.have[envoy.ClusterType][to]; !ok && c.have[envoy.ClusterType]["in"] != "" {
				c.h.t.Fatalf("%v: route %s=%s names a cluster that is not there", c, name, version)
			}
		}
	}
}

func (c *modelClient) String() string {
	switch {
	case c.hosts:
		return "delta with virtual hosts by themselves"
	case c.delta:
		return "delta"
	}
	return "state of the world"
}
