package diff

import (
	"bytes"
	"cmp"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// References are the names of resources that clusters and listeners subscribe to, by type URL.
type References map[string][]string

// Add adds the names to which a cluster or a listener subscribes.
func (refs References) Add(typeURL string, r *envoy.Resource) error {
	add := func(to string, names ...string) { refs[to] = append(refs[to], names...) }
	var m proto.Message
	switch typeURL {
	case envoy.ClusterType:
		c := &clusterv3.Cluster{}
		if err := proto.Unmarshal(r.Value(), c); err != nil {
			return err
		}
		if c.GetType() == clusterv3.Cluster_EDS {
			add(envoy.EndpointType, cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName()))
		}
		m = c
	case envoy.ListenerType:
		l := &listenerv3.Listener{}
		if err := proto.Unmarshal(r.Value(), l); err != nil {
			return err
		}
		if err := refs.listener(l, add); err != nil {
			return err
		}
		m = l
	default:
		return nil
	}
	if bytes.Contains(r.Value(), []byte("://")) { // only names of Secrets of objects have it
		secrets(m.ProtoReflect(), func(name string) { add(envoy.SecretType, name) })
	}
	return nil
}

func (refs References) listener(l *listenerv3.Listener, add func(string, ...string)) error {
	if api := l.GetApiListener().GetApiListener(); api != nil { // listener of an application that uses xDS itself
		h := &hcmv3.HttpConnectionManager{}
		if err := api.UnmarshalTo(h); err != nil {
			return err
		}
		add(envoy.RouteType, h.GetRds().GetRouteConfigName())
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains, d)
	}
	for _, chain := range chains {
		for _, f := range chain.GetFilters() {
			if f.GetConfigDiscovery() != nil {
				add(envoy.ExtensionType, f.GetName())
			}
			h := &hcmv3.HttpConnectionManager{}
			if !f.GetTypedConfig().MessageIs(h) {
				continue
			}
			if err := f.GetTypedConfig().UnmarshalTo(h); err != nil {
				return err
			}
			for _, f := range h.GetHttpFilters() {
				if f.GetConfigDiscovery() != nil {
					add(envoy.ExtensionType, f.GetName())
				}
			}
			if rds := h.GetRds(); rds != nil {
				add(envoy.RouteType, rds.GetRouteConfigName())
			}
		}
	}
	return nil
}

// secrets calls add with the names of the Secrets of objects that a message subscribes to, in the messages inside it
// too.
func secrets(m protoreflect.Message, add func(string)) {
	switch x := m.Interface().(type) {
	case *tlsv3.SdsSecretConfig:
		if strings.Contains(x.GetName(), "://") {
			add(x.GetName())
		}
		return
	case *anypb.Any:
		if inner, err := x.UnmarshalNew(); err == nil {
			secrets(inner.ProtoReflect(), add)
		}
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					secrets(v.Message(), add)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				secrets(v.List().Get(i).Message(), add)
			}
		default:
			secrets(v.Message(), add)
		}
		return true
	})
}
