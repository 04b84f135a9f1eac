package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	cmpdiff "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	clusternames "github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// content is a resource, decoded.
type content struct {
	name     string
	value    string   // the encoded message
	clusters []string // to which it sends requests
	refers   []string // of clusters and listeners: assignments and route configurations
	heads    bool     // a route configuration whose virtual hosts come by themselves
	vacant   bool     // what takes the place of a virtual host that is going
	hashes   []uint64 // of what clients may reject it for; of a route configuration each virtual host's
}

// contents decodes each content once. Safe for concurrent use.
type contents struct {
	mu      sync.Mutex
	known   map[string]*content
	version map[string]string // by type, name and version: the bytes
}

func (k *contents) look(a *anypb.Any) (*content, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := a.TypeUrl + string(a.Value)
	if x := k.known[key]; x != nil {
		return x, nil
	}
	x, err := decode(a)
	if err == nil {
		k.known[key] = x
	}
	return x, err
}

// sameVersion reports whether resources of one name and version are the same bytes.
func (k *contents) sameVersion(typeURL, name, version, value string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := typeURL + " " + name + " " + version
	had, ok := k.version[key]
	k.version[key] = value
	return !ok || had == value
}

func hashOf(m proto.Message) uint64 {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return xxhash.Sum64(b)
}

func decode(a *anypb.Any) (*content, error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("what was sent does not decode: %w", err)
	}
	x := &content{value: string(a.Value)}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		x.name, x.hashes = m.Name, []uint64{hashOf(m)}
		if m.GetType() == clusterv3.Cluster_EDS {
			x.refers = []string{cmp.Or(m.GetEdsClusterConfig().GetServiceName(), m.Name)}
		}
	case *endpointv3.ClusterLoadAssignment:
		x.name, x.hashes = m.ClusterName, []uint64{hashOf(m)}
	case *listenerv3.Listener:
		x.name, x.hashes = m.Name, []uint64{hashOf(m)}
		return x, x.listener(m)
	case *routev3.RouteConfiguration:
		x.name, x.heads = m.Name, m.Vhds != nil
		for _, h := range m.VirtualHosts {
			x.host(h)
			if !x.heads {
				x.hashes = append(x.hashes, hashOf(h))
			}
		}
	case *routev3.VirtualHost:
		x.host(m)
		if x.vacant = len(m.Domains) == 1 && strings.HasPrefix(m.Domains[0], "removed.invalid/"); !x.vacant {
			x.hashes = []uint64{hashOf(m)}
		}
	default:
		return nil, fmt.Errorf("what was sent is a %s", a.TypeUrl)
	}
	return x, nil
}

func (x *content) listener(l *listenerv3.Listener) error {
	chains := l.FilterChains
	if l.DefaultFilterChain != nil {
		chains = append(slices.Clip(chains), l.DefaultFilterChain)
	}
	for _, c := range chains {
		for _, f := range c.Filters {
			h, tcp := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
			switch a := f.GetTypedConfig(); {
			case a.MessageIs(h):
				if err := a.UnmarshalTo(h); err != nil {
					return err
				}
				if h.GetRds() != nil {
					x.refers = append(x.refers, h.GetRds().RouteConfigName)
				}
				for _, v := range h.GetRouteConfig().GetVirtualHosts() {
					x.host(v)
				}
			case a.MessageIs(tcp):
				if err := a.UnmarshalTo(tcp); err != nil {
					return err
				}
				x.to(tcp.GetCluster())
				for _, w := range tcp.GetWeightedClusters().GetClusters() {
					x.to(w.Name)
				}
			}
		}
	}
	return nil
}

func (x *content) host(h *routev3.VirtualHost) {
	for _, r := range h.Routes {
		x.to(r.GetRoute().GetCluster())
		for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
			x.to(w.Name)
		}
		for _, p := range r.GetRoute().GetRequestMirrorPolicies() {
			x.to(p.Cluster)
		}
	}
}

func (x *content) to(cluster string) {
	if cluster != "" && cluster != clusternames.UnknownService && !slices.Contains(x.clusters, cluster) {
		x.clusters = append(x.clusters, cluster)
	}
}

// picture is what a proxy has, or should have, by type and name; of route configurations whole ones, if need be put
// together.
type picture map[string]map[string]*content

// route is one route configuration as a Translator makes it that has seen nothing else.
func (h *history) route(s *snapshot.Snapshot, n *corev3.Node, name string) (*content, error) {
	p, err := node.Parse(n)
	if err != nil {
		return nil, err
	}
	tr, a := translate.New(translate.Options{Features: catalog.Features()}), &anypb.Any{}
	var interner envoy.NameInterner
	u, err := tr.Get(s, tr.ResolveCohort(s, p), envoy.RouteType, interner.Intern([]string{name}))
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(u.Get(name).Bytes(), a); err != nil {
		return nil, err
	}
	return h.look(a)
}

// expected is what a Translator that has seen nothing else, and remembers nothing, makes for a proxy from a Snapshot.
func (h *history) expected(s *snapshot.Snapshot, n *corev3.Node) (picture, error) {
	p, err := node.Parse(n)
	if err != nil {
		return nil, err
	}
	tr := translate.New(translate.Options{Features: catalog.Features()})
	c := tr.ResolveCohort(s, p)
	out := picture{}
	add := func(typeURL string, r *envoy.Resource) ([]string, error) {
		a := &anypb.Any{}
		if r == nil {
			return nil, errors.New("a resource is missing")
		}
		if err := proto.Unmarshal(r.Bytes(), a); err != nil {
			return nil, err
		}
		x, err := h.look(a)
		if err != nil {
			return nil, err
		}
		if out[typeURL] == nil {
			out[typeURL] = map[string]*content{}
		}
		out[typeURL][r.Name] = x
		return x.refers, nil
	}
	for _, from := range []struct{ typeURL, to string }{{envoy.ClusterType, envoy.EndpointType}, {envoy.ListenerType, envoy.RouteType}} {
		var refers []string
		all, err := tr.Get(s, c, from.typeURL, nil)
		for r := range all.All {
			names, failed := add(from.typeURL, r)
			refers, err = append(refers, names...), errors.Join(err, failed)
		}
		var interner envoy.NameInterner
		names := interner.Intern(refers)
		referred, failed := tr.Get(s, c, from.to, names)
		err = errors.Join(err, failed)
		for _, name := range names.All() {
			if _, failed := add(from.to, referred.Get(name)); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// has is what a client has, with virtual hosts put into their route configurations. The lock is held.
func (c *modelEnvoy) has() (picture, error) {
	out := picture{}
	for _, t := range subscribedTypes[:4] {
		out[t] = map[string]*content{}
		for name, x := range c.have[t] {
			out[t][name] = x.content
			if !x.heads {
				continue
			}
			rc := &routev3.RouteConfiguration{}
			if err := proto.Unmarshal([]byte(x.value), rc); err != nil {
				return nil, err
			}
			rc.Vhds = nil
			for _, host := range slices.Sorted(maps.Keys(c.live[name])) {
				h := &routev3.VirtualHost{}
				if err := proto.Unmarshal([]byte(c.live[name][host].value), h); err != nil {
					return nil, err
				}
				rc.VirtualHosts = append(rc.VirtualHosts, h)
			}
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(rc)
			if err != nil {
				return nil, err
			}
			if out[t][name], err = c.h.look(&anypb.Any{TypeUrl: t, Value: b}); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// canonical is a route configuration in which the order of virtual hosts, and of fields on the wire, does not count:
// clients that take virtual hosts by themselves are not sent the one and need not know of the other.
func canonical(x *content) string {
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal([]byte(x.value), rc); err != nil {
		return err.Error()
	}
	slices.SortFunc(rc.VirtualHosts, func(a, b *routev3.VirtualHost) int { return strings.Compare(a.Name, b.Name) })
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(rc)
	return string(b)
}

// differ returns where a client does not have what it should have; what it rejects need not be there.
func (c *modelEnvoy) differ(want picture) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	has, err := c.has()
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, t := range subscribedTypes[:4] {
		for name, w := range want[t] {
			if subs := c.subs[t]; subs != nil && !subs[name] && c.salt != 0 {
				continue
			}
			x, had := has[t][name], c.have[t][name]
			switch {
			case x == w || c.rejects(w) && (had == nil || !had.heads):
			case x == nil:
				list = append(list, short(t)+" "+name+" is missing")
			case t == envoy.RouteType && c.mode == divided:
				if d := c.differHosts(name, x, w); d != "" {
					list = append(list, d)
				}
			default:
				list = append(list, short(t)+" "+name+" is another: "+lines(t, x, w))
			}
		}
		for name := range has[t] {
			if want[t][name] == nil && (c.subs[t] == nil || c.salt == 0) {
				list = append(list, short(t)+" "+name+" should not be there")
			}
		}
	}
	for name := range c.warming {
		if c.salt == 0 && c.active[name] != nil && c.active[name].value != c.have[envoy.ClusterType][name].value {
			list = append(list, "cluster "+name+" is left warming")
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

func (c *modelEnvoy) rejects(x *content) bool {
	return c.salt != 0 && slices.ContainsFunc(x.hashes, c.isBad)
}

// differHosts compares a route configuration that was put together with the whole one.
func (c *modelEnvoy) differHosts(name string, has, want *content) string {
	a, b := canonical(has), canonical(want)
	if a == b {
		return ""
	}
	if c.salt != 0 { // virtual hosts that it rejects are others, or missing
		strip := func(x string) string {
			rc := &routev3.RouteConfiguration{}
			_ = proto.Unmarshal([]byte(x), rc)
			bad := map[string]bool{}
			for _, text := range []string{a, b} {
				both := &routev3.RouteConfiguration{}
				_ = proto.Unmarshal([]byte(text), both)
				for _, h := range both.VirtualHosts {
					bad[h.Name] = bad[h.Name] || c.isBad(hashOf(h))
				}
			}
			rc.VirtualHosts = slices.DeleteFunc(rc.VirtualHosts, func(h *routev3.VirtualHost) bool { return bad[h.Name] })
			out, _ := proto.MarshalOptions{Deterministic: true}.Marshal(rc)
			return string(out)
		}
		if strip(a) == strip(b) {
			return ""
		}
	}
	list := func(x string) (out []string) {
		rc := &routev3.RouteConfiguration{}
		_ = proto.Unmarshal([]byte(x), rc)
		for _, h := range rc.VirtualHosts {
			out = append(out, fmt.Sprintf("%s#%x", h.Name, hashOf(h)%0xffff))
		}
		return out
	}
	return fmt.Sprintf("RouteConfiguration %s put together is another: %v, not %v", name, list(a), list(b))
}

// dangles reports whether in some Snapshot of the history the resource of this name leads to a cluster that is not
// there: a VirtualService leads to what does not exist. What the client has may be another version of the resource: for
// a while it keeps the patches of a workload that has gone.
func (h *history) dangles(c *modelEnvoy, typeURL, name, cluster string) bool {
	for _, s := range slices.Backward(h.snapshots()) {
		want, err := h.wanted(s, c.node)
		if err != nil {
			h.fail(err)
			return true
		}
		if want[envoy.ClusterType][cluster] != nil {
			continue
		}
		is := want[typeURL][name]
		if route := name; typeURL != envoy.ListenerType {
			if typeURL == envoy.VirtualHostType {
				route = folder(name)
			}
			if is = want[envoy.RouteType][route]; is == nil { // no listener names it any more, and the client has not heard
				if is, err = h.route(s, c.node, route); err != nil {
					h.fail(err)
					return true
				}
			}
		}
		if is != nil && slices.Contains(is.clusters, cluster) {
			return true
		}
	}
	return false
}

// wanted is expected, worked out once.
func (h *history) wanted(s *snapshot.Snapshot, n *corev3.Node) (picture, error) {
	type key struct {
		s *snapshot.Snapshot
		n *corev3.Node
	}
	k := key{s, n}
	v, _ := h.pictures.LoadOrStore(k, sync.OnceValues(func() (picture, error) { return h.expected(s, n) }))
	return v.(func() (picture, error))()
}

// rest waits until every client has what it should have of the newest Snapshot. It fails where nothing has come for
// long, or things come without end.
func (h *history) rest() error {
	h.settle()
	first := h.responses.Load()
	for came, end := first, time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		if n := h.responses.Load(); n != came {
			came, end = n, time.Now().Add(timeout)
		}
		s, late := h.server.world.Snapshot(), ""
		for _, c := range h.clients {
			want, err := h.wanted(s, c.node)
			if err != nil {
				return err
			}
			if d := c.differ(want); d != "" {
				c.mu.Lock()
				late = fmt.Sprintf("%v (rejects: %t) at rest, revision %d:\n%s\nwhat happened to it:\n%s",
					c, c.salt != 0, s.Revision, d, strings.Join(c.log, "\n"))
				c.mu.Unlock()
				break
			}
		}
		if err := h.failure(); err != nil {
			return err
		}
		if late == "" {
			return h.alike(s)
		}
		if came-first > 10000 {
			return errors.New("responses come without end: " + late)
		}
		if time.Now().After(end) {
			return errors.New(late)
		}
	}
}

// alike compares the clients of one proxy with each other, and the Snapshot with one of a world to which all objects
// came at once.
func (h *history) alike(s *snapshot.Snapshot) error {
	var err error
	for _, all := range h.worlds() {
		if err = h.alikeOnce(s, newWorld(h.server.o, nil, nil, nil, nil).Commit(all, time.Time{})); err == nil {
			break
		}
	}
	return err
}

func (h *history) alikeOnce(s, once *snapshot.Snapshot) error {
	first := map[string]picture{}
	for _, c := range h.clients {
		want, err := h.wanted(s, c.node)
		if err != nil {
			return err
		}
		fresh, err := h.expected(once, c.node)
		if err != nil {
			return err
		}
		if d := differences(want, fresh); d != "" {
			return fmt.Errorf("%v: revision %d is not what a world is to which all objects come at once:\n%s", c, s.Revision, d)
		}
		if c.salt != 0 {
			continue
		}
		if first[c.who] == nil {
			first[c.who] = want
		} else if d := differences(first[c.who], want); d != "" {
			return fmt.Errorf("%v is to have other than with other protocols:\n%s", c, d)
		}
	}
	return nil
}

func differences(a, b picture) string {
	var list []string
	for _, t := range subscribedTypes[:4] {
		for name, x := range a[t] {
			if y := b[t][name]; y == nil {
				list = append(list, short(t)+" "+name+" is only in the first")
			} else if x.value != y.value {
				list = append(list, short(t)+" "+name+": "+lines(t, x, y))
			}
		}
		for name := range b[t] {
			if a[t][name] == nil {
				list = append(list, short(t)+" "+name+" is only in the second")
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// lines returns the lines in which the texts of two resources differ.
func lines(typeURL string, a, b *content) string {
	text := func(x *content) []string {
		m, err := (&anypb.Any{TypeUrl: typeURL, Value: []byte(x.value)}).UnmarshalNew()
		if err != nil {
			return []string{err.Error()}
		}
		return strings.Split(prototext.MarshalOptions{Multiline: true, EmitUnknown: true}.Format(m), "\n")
	}
	return cmpdiff.Diff(text(a), text(b))
}
