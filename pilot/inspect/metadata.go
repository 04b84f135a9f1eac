package inspect

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

const (
	// configAnnotation holds the proxy configuration of one Pod. It overrides the mesh's.
	configAnnotation = names.AnnotationProxyConfig
	// configVariable holds the proxy configuration in the container of an injected proxy.
	configVariable = "PROXY_CONFIG"
	// metadataPrefix is the prefix of variables that become entries of the metadata of a proxy's node.
	metadataPrefix = "ISTIO_META_"
)

// node returns the node of the proxy of a Pod or a WorkloadEntry, with the metadata that its configuration gives it. If
// the Pod has a proxy container, its configuration is used. Otherwise it is the one that injection would write.
func (i *Inspection) node(p *node.Proxy, o *kinds.Object) *corev3.Node {
	n := node.Format(p)
	config, variables := i.environment(o)
	fields := n.GetMetadata().GetFields()
	for name, value := range variables {
		key, ok := strings.CutPrefix(name, metadataPrefix)
		if ok && value != "" && fields[key] == nil { // known properties of the proxy have precedence
			fields[key] = structpb.NewStringValue(value)
		}
	}
	text, err := protojson.Marshal(config)
	own := &structpb.Struct{}
	if err != nil || protojson.Unmarshal(text, own) != nil {
		return n
	}
	told := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	if settings, err := mesh.Settings(own); err == nil {
		maps.Copy(told.Fields, mesh.FormatSettings(settings).GetFields())
	}
	if tracing, err := mesh.OwnTracing(own); err == nil {
		maps.Copy(told.Fields, mesh.FormatSettings(tracing).GetFields())
	}
	if len(told.Fields) > 0 {
		fields[configVariable] = structpb.NewStructValue(told)
	}
	return n
}

// environment returns the configuration and the variables of the agent of a Pod or a WorkloadEntry: of the container of
// the proxy, if the Pod has one, or else as injection would write them.
func (i *Inspection) environment(o *kinds.Object) (*meshv1alpha1.ProxyConfig, map[string]string) {
	config, variables := i.effective(o), map[string]string{}
	if c := proxyContainer(o); c != nil {
		for _, v := range c.Env {
			variables[v.Name] = v.Value // empty for a value from elsewhere
		}
		if text := variables[configVariable]; text != "" { // written by injection
			own := &meshv1alpha1.ProxyConfig{}
			if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), own) == nil {
				config = own
			}
		}
	}
	for name, value := range config.GetProxyMetadata() {
		variables[name] = cmp.Or(variables[name], value)
	}
	return config, variables
}

// stateOfTheWorld reports whether the agent of a proxy, NAME.NAMESPACE, starts its Envoy with a state-of-the-world
// stream.
func (i *Inspection) stateOfTheWorld(proxy string) bool {
	at := strings.LastIndexByte(proxy, '.')
	for _, kind := range []*kinds.Kind{kinds.Pod, kinds.WorkloadEntry} {
		if o := i.world.Object(kinds.Key{Kind: kind, Namespace: proxy[at+1:], Name: proxy[:max(at, 0)]}); o != nil {
			_, variables := i.environment(o)
			delta, err := strconv.ParseBool(variables["ISTIO_DELTA_XDS"])
			return err == nil && !delta
		}
	}
	return false
}

// proxyContainer returns the container of a Pod's proxy, or nil. It is nil for Pods read from a cluster, whose
// containers are not kept.
func proxyContainer(o *kinds.Object) *corev1.Container {
	pod, whole := o.Spec.(*corev1.Pod)
	if !whole {
		return nil
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if at := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == kube.ProxyContainer }); at >= 0 {
			return &list[at]
		}
	}
	return nil
}

// effective returns the configuration with which a proxy is injected now. It merges, in ascending precedence, the
// mesh's, ProxyConfigs without a selector, the annotation, and the ProxyConfig that selects the workload.
func (i *Inspection) effective(o *kinds.Object) *meshv1alpha1.ProxyConfig {
	p := proto.CloneOf(i.Snapshot.Mesh.GetDefaultConfig())
	if p == nil {
		p = &meshv1alpha1.ProxyConfig{}
	}
	add := func(c *networkingv1beta1.ProxyConfig) {
		if p.ProxyMetadata == nil {
			p.ProxyMetadata = map[string]string{}
		}
		maps.Copy(p.ProxyMetadata, c.GetEnvironmentVariables())
	}
	whole, selecting := i.Snapshot.ProxyConfigs(o.Namespace, o.Labels)
	for _, c := range whole {
		add(c)
	}
	if text, ok := o.Annotations[configAnnotation]; ok {
		if over, _ := mesh.SalvageProxyConfig(p, []byte(text)); over != nil { // injection rejects other texts
			p = over
		}
	}
	if selecting != nil {
		add(selecting)
	}
	return p
}
