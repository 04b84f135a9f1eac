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

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/diff"
)

// watched is a resource that a watcher has.
type watched struct {
	value  string
	refers map[string][]string // names, by type, of what it subscribes to
}

// wholeTypes are the types that Envoys and their agents ask for as a whole. Only agents that answer DNS ask for the
// table of names.
func wholeTypes(dns bool) []string {
	list := []string{envoy.ClusterType, envoy.ListenerType, envoy.ProxyConfigType}
	if dns {
		list = append(list, envoy.NameTableType)
	}
	return list
}

// refersTo returns the names, by type, of what a resource subscribes to at the server.
func refersTo(a *anypb.Any) (map[string][]string, error) {
	refers := map[string][]string{}
	if a.GetTypeUrl() != envoy.ClusterType && a.GetTypeUrl() != envoy.ListenerType {
		return refers, nil
	}
	var walk func(m protoreflect.Message) error
	list := func(v protoreflect.Value, of protoreflect.FieldDescriptor) (all []protoreflect.Value) {
		switch {
		case of.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				all = append(all, v)
				return true
			})
		case of.IsList():
			for i := range v.List().Len() {
				all = append(all, v.List().Get(i))
			}
		default:
			all = append(all, v)
		}
		return all
	}
	walk = func(m protoreflect.Message) (err error) {
		add := func(to, name string) { refers[to] = append(refers[to], name) }
		switch x := m.Interface().(type) {
		case *anypb.Any:
			inner, err := x.UnmarshalNew()
			if errors.Is(err, protoregistry.NotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			return walk(inner.ProtoReflect())
		case *clusterv3.Cluster:
			if x.GetEdsClusterConfig() != nil {
				add(envoy.EndpointType, cmp.Or(x.GetEdsClusterConfig().GetServiceName(), x.GetName()))
			}
		case *hcmv3.Rds:
			add(envoy.RouteType, x.GetRouteConfigName())
		case *listenerv3.Filter:
			if x.GetConfigDiscovery() != nil {
				add(envoy.ExtensionType, x.GetName())
			}
		case *hcmv3.HttpFilter:
			if x.GetConfigDiscovery() != nil {
				add(envoy.ExtensionType, x.GetName())
			}
		case *tlsv3.SdsSecretConfig:
			if x.GetSdsConfig().GetAds() != nil { // the agent has the others
				add(envoy.SecretType, x.GetName())
			}
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if f.Message() == nil || f.IsMap() && f.MapValue().Message() == nil {
				return true
			}
			for _, v := range list(v, f) {
				if err = walk(v.Message()); err != nil {
					return false
				}
			}
			return true
		})
		return err
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	return refers, walk(m.ProtoReflect())
}

// watcher is a client that subscribes as Envoy and its agent do, and writes down what comes.
type watcher struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	mu      sync.Mutex
	have    map[string]map[string]*watched
	subs    map[string]map[string]bool
	came    map[string]bool // as describe has it
	barred  int
	reached int
	failed  error
	dns     bool // its agent answers DNS
	proved  bool // so that it is sent secrets
}

func newWatcher(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, dns, proved bool) *watcher {
	x := &watcher{stream: stream, dns: dns, proved: proved, have: map[string]map[string]*watched{}, subs: map[string]map[string]bool{}}
	for _, typeURL := range x.named() {
		x.subs[typeURL] = map[string]bool{}
	}
	x.reset()
	return x
}

// named returns the types whose resources it subscribes to by name, as clusters and listeners name them.
func (x *watcher) named() []string {
	list := []string{envoy.EndpointType, envoy.RouteType, envoy.ExtensionType}
	if x.proved {
		list = append(list, envoy.SecretType)
	}
	return list
}

// types are those that it subscribes to.
func (x *watcher) types() []string { return slices.Concat(wholeTypes(x.dns), x.named()) }

func (x *watcher) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.came = map[string]bool{}
}

func (x *watcher) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = cmp.Or(x.failed, err)
}

// pushed returns what has come. What changed before it went is what went.
func (x *watcher) pushed() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	for what := range x.came {
		if gone, ok := strings.CutPrefix(what, "- "); ok {
			delete(x.came, "+ "+gone)
		}
	}
	return slices.Sorted(maps.Keys(x.came))
}

// take is one response.
func (x *watcher) take(r *discoveryv3.DeltaDiscoveryResponse) {
	x.mu.Lock()
	defer x.mu.Unlock()
	short := envoy.ShortType(r.TypeUrl)
	if x.have[r.TypeUrl] == nil {
		x.have[r.TypeUrl] = map[string]*watched{}
	}
	for _, a := range r.Resources {
		if strings.HasPrefix(a.Name, "barrier-") {
			x.reached++
			continue
		}
		if subs := x.subs[r.TypeUrl]; subs != nil && !subs[a.Name] { // it was on its way
			continue
		}
		refers, err := refersTo(a.Resource)
		if err != nil {
			x.failed = err
			return
		}
		c := &watched{string(a.Resource.GetValue()), refers}
		if had := x.have[r.TypeUrl][a.Name]; had == nil || had.value != c.value {
			x.came[describe(short, a.Name, false)] = true
		} else if r.TypeUrl != envoy.EndpointType || !x.came[describe("cds", a.Name, false)] { // a cluster that changes waits for its endpoints
			x.failed = fmt.Errorf("%s %s comes though nothing is new in it", short, a.Name)
		}
		x.have[r.TypeUrl][a.Name] = c
	}
	for _, name := range r.RemovedResources {
		x.drop(r.TypeUrl, name)
	}
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
	_ = x.stream.Send(ack)
	if r.TypeUrl == envoy.ClusterType || r.TypeUrl == envoy.ListenerType {
		for _, to := range x.named() {
			x.follow(to)
		}
	}
}

func (x *watcher) drop(typeURL, name string) {
	if x.have[typeURL][name] != nil {
		delete(x.have[typeURL], name)
		x.came[describe(envoy.ShortType(typeURL), name, true)] = true
	}
}

// follow subscribes to what clusters and listeners name of a type.
func (x *watcher) follow(to string) {
	wanted := map[string]bool{}
	for _, from := range []string{envoy.ClusterType, envoy.ListenerType} {
		for _, c := range x.have[from] {
			for _, name := range c.refers[to] {
				wanted[name] = true
			}
		}
	}
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: to}
	for name := range wanted {
		if !x.subs[to][name] {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		}
	}
	for name := range x.subs[to] {
		if !wanted[name] {
			r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, name)
			x.drop(to, name)
		}
	}
	x.subs[to] = wanted
	if len(r.ResourceNamesSubscribe)+len(r.ResourceNamesUnsubscribe) > 0 {
		_ = x.stream.Send(r)
	}
}

// differs says where the client does not have what a View has for it.
func (x *watcher) differs(v *diff.View, name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed != nil {
		return x.failed.Error()
	}
	for _, typeURL := range x.types() {
		n := 0
		for r := range v.Get(name, typeURL).All {
			n++
			if has := x.have[typeURL][r.Name]; has == nil || has.value != string(r.Value()) {
				return envoy.ShortType(typeURL) + " " + r.Name
			}
		}
		if n != len(x.have[typeURL]) {
			return fmt.Sprintf("%d %s, not %d", len(x.have[typeURL]), envoy.ShortType(typeURL), n)
		}
	}
	return ""
}

// barrier asks for what nobody has heard of: once that is answered, what was to be pushed before has come.
func (x *watcher) barrier() bool {
	x.mu.Lock()
	x.barred++
	name, want := fmt.Sprintf("barrier-%d", x.barred), x.barred
	_ = x.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: []string{name}})
	x.mu.Unlock()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		x.mu.Lock()
		there := x.reached >= want
		if there {
			_ = x.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesUnsubscribe: []string{name}})
		}
		x.mu.Unlock()
		if there {
			return true
		}
	}
	return false
}
