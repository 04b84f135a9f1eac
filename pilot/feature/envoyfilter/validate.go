package envoyfilter

import (
	"errors"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// validValue returns why Envoy would reject a value in any place, or nil if that depends on the message into which it
// is merged.
func validValue(m proto.Message, op networkingv1alpha3.EnvoyFilter_Patch_Operation) error {
	if !merges(op) {
		return valid(m)
	}
	return nil
}

// valid returns why Envoy would reject a resource or a part of one, as far as that is known: by the constraints of its
// API, also in each message inside, and by the order of filters.
func valid(m proto.Message) error {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	if err := validInside(m.ProtoReflect()); err != nil {
		return err
	}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		return validCluster(m)
	case *listenerv3.Listener:
		return validListener(m)
	case *hcmv3.HttpConnectionManager:
		return validFilters(m)
	}
	return nil
}

// validInside validates the messages inside of google.protobuf.Any.
func validInside(m protoreflect.Message) (err error) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		switch {
		case err == nil:
			return valid(inner)
		case a.TypeUrl == "" || errors.Is(err, protoregistry.NotFound): // not linked, so its constraints are not known
			return nil
		}
		return fmt.Errorf("%s: %w", a.TypeUrl, err)
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil || fd.IsMap() && fd.MapValue().Message() == nil:
		case fd.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = validInside(v.Message())
				return err == nil
			})
		case fd.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = validInside(v.List().Get(i).Message())
			}
		default:
			err = validInside(v.Message())
		}
		return err == nil
	})
	return err
}

func validCluster(c *clusterv3.Cluster) error {
	switch {
	case c.Name == "":
		return errors.New("a cluster needs a name")
	case c.GetType() == clusterv3.Cluster_EDS && c.GetEdsClusterConfig().GetEdsConfig() == nil:
		return errors.New("a cluster of type EDS needs eds_cluster_config.eds_config")
	case c.GetType() != clusterv3.Cluster_EDS && c.GetEdsClusterConfig() != nil:
		return fmt.Errorf("a cluster of type %v has eds_cluster_config", c.GetType())
	case c.GetClusterType() == nil && c.GetType() == clusterv3.Cluster_ORIGINAL_DST && c.LbPolicy != clusterv3.Cluster_CLUSTER_PROVIDED:
		return errors.New("a cluster of type ORIGINAL_DST needs lb_policy CLUSTER_PROVIDED")
	case c.LbPolicy == clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG && c.LoadBalancingPolicy == nil:
		return errors.New("lb_policy LOAD_BALANCING_POLICY_CONFIG needs load_balancing_policy")
	case c.GetType() == clusterv3.Cluster_LOGICAL_DNS && endpoints(c) != 1:
		return errors.New("a cluster of type LOGICAL_DNS has one endpoint")
	}
	return nil
}

func endpoints(c *clusterv3.Cluster) (n int) {
	for _, l := range c.GetLoadAssignment().GetEndpoints() {
		n += len(l.LbEndpoints)
	}
	return n
}

func validListener(l *listenerv3.Listener) error {
	switch {
	case l.Name == "":
		return errors.New("a listener needs a name")
	case l.Address == nil && l.GetInternalListener() == nil && l.GetApiListener() == nil:
		return errors.New("a listener needs an address")
	case len(l.FilterChains) == 0 && l.DefaultFilterChain == nil && len(l.ListenerFilters) == 0 && l.GetApiListener() == nil:
		return errors.New("a listener needs a filter chain")
	}
	matches := map[string]bool{}
	for _, c := range append(l.FilterChains[:len(l.FilterChains):len(l.FilterChains)], l.DefaultFilterChain) {
		if c == nil {
			continue
		}
		for i, f := range c.Filters {
			if isTerminal(f) && i < len(c.Filters)-1 {
				return fmt.Errorf("%s must be the last filter of its chain", f.Name)
			}
		}
		if c == l.DefaultFilterChain {
			continue
		}
		key, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.GetFilterChainMatch())
		if err == nil && matches[string(key)] {
			return errors.New("two filter chains match the same connections")
		}
		matches[string(key)] = true
	}
	return nil
}

// isTerminal reports whether a network filter is known to end a chain.
func isTerminal(f *listenerv3.Filter) bool {
	switch f.GetTypedConfig().GetTypeUrl() {
	case "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy":
		return true
	}
	return false
}

const router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"

// validFilters validates the order of HTTP filters: the router is last.
func validFilters(m *hcmv3.HttpConnectionManager) error {
	for i, f := range m.HttpFilters {
		if f.GetTypedConfig().GetTypeUrl() == router && i < len(m.HttpFilters)-1 {
			return fmt.Errorf("%s comes after the router, which must be the last HTTP filter", m.HttpFilters[i+1].Name)
		}
	}
	if len(m.HttpFilters) == 0 {
		return errors.New("a connection manager needs HTTP filters, the last of them the router")
	}
	return nil
}
