package envoy

import (
	"cmp"
	"slices"
	"sync/atomic"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Reference is a name in a resource to which a client subscribes on the same stream when it has the resource.
type Reference struct {
	TypeURL string
	Name    string
}

// references holds the references of a resource once they are known.
type references = atomic.Pointer[[]Reference]

// refers reports whether resources of a type may refer to others.
func refers(url string) bool {
	return url == ClusterType || url == ListenerType || url == RouteType || url == ExtensionType
}

// References returns what the resource refers to, sorted: the assignment of a cluster, the route configurations,
// extensions and secrets that a listener, a cluster or an extension names, and the clusters that a route configuration
// routes to. Names that do not come by the stream of the resource are left out. The references are decoded at the first
// call.
func (r *Resource) References() []Reference {
	if r.references == nil {
		return nil
	}
	if known := r.references.Load(); known != nil {
		return *known
	}
	list := referencesOf(r.TypeURL(), r.Value())
	r.references.Store(&list)
	return list
}

// referencesOf decodes a message and returns its references. A message that cannot be decoded has none: no client takes
// it.
func referencesOf(url string, value []byte) []Reference {
	m, err := (&anypb.Any{TypeUrl: url, Value: value}).UnmarshalNew()
	if err != nil {
		return nil
	}
	f := &finder{}
	f.message(m.ProtoReflect())
	slices.SortFunc(f.list, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Name, b.Name))
	})
	return slices.Clip(slices.Compact(f.list))
}

// finder collects the references in a message.
type finder struct{ list []Reference }

func (f *finder) add(url, name string) {
	if name != "" {
		f.list = append(f.list, Reference{url, name})
	}
}

// message adds the references of a message and of the messages in it.
func (f *finder) message(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *anypb.Any:
		if inner, err := x.UnmarshalNew(); err == nil { // no type of a reference is unknown to this program
			f.message(inner.ProtoReflect())
		}
		return
	case *clusterv3.Cluster:
		if e := x.GetEdsClusterConfig(); x.GetType() == clusterv3.Cluster_EDS && sameStream(e.GetEdsConfig()) {
			f.add(EndpointType, cmp.Or(e.GetServiceName(), x.Name))
		}
	case *tlsv3.SdsSecretConfig:
		if sameStream(x.GetSdsConfig()) {
			f.add(SecretType, x.Name)
		}
	case *hcmv3.Rds:
		if sameStream(x.GetConfigSource()) {
			f.add(RouteType, x.RouteConfigName)
		}
	case *hcmv3.ScopedRoutes:
		if sameStream(x.GetRdsConfigSource()) {
			for _, s := range x.GetScopedRouteConfigurationsList().GetScopedRouteConfigurations() {
				f.add(RouteType, s.RouteConfigurationName)
			}
		}
	case *hcmv3.HttpFilter:
		f.extension(x.Name, x.GetConfigDiscovery())
	case *listenerv3.Filter:
		f.extension(x.Name, x.GetConfigDiscovery())
	case *listenerv3.ListenerFilter:
		f.extension(x.Name, x.GetConfigDiscovery())
	case *routev3.RouteAction:
		f.add(ClusterType, x.GetCluster())
		for _, c := range x.GetWeightedClusters().GetClusters() {
			f.add(ClusterType, c.Name)
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					f.message(v.Message())
					return true
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				f.message(v.List().Get(i).Message())
			}
		default:
			f.message(v.Message())
		}
		return true
	})
}

func (f *finder) extension(name string, c *corev3.ExtensionConfigSource) {
	if sameStream(c.GetConfigSource()) {
		f.add(ExtensionType, name)
	}
}

// sameStream reports whether a client subscribes to a name on the stream of the resource that names it.
func sameStream(c *corev3.ConfigSource) bool { return c.GetAds() != nil || c.GetSelf() != nil }
