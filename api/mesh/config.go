package mesh

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/compliance"
)

// Config is the mesh's configuration with all defaults filled in. The embedded getters return fields that need no
// interpretation.
type Config struct {
	*meshv1alpha1.MeshConfig
	// Compliance limits the TLS of proxies. It is the policy of the server, not a part of a mesh configuration.
	Compliance compliance.Policy

	own variants
}

// Default returns the configuration of a mesh that sets no field.
func Default() *Config {
	everywhere := func() []string { return []string{"*"} }
	return &Config{MeshConfig: &meshv1alpha1.MeshConfig{
		ProxyListenPort:                15001,
		ProxyInboundListenPort:         15006,
		ConnectTimeout:                 durationpb.New(10 * time.Second),
		ProtocolDetectionTimeout:       durationpb.New(0),
		DnsRefreshRate:                 durationpb.New(60 * time.Second),
		IngressClass:                   "istio",
		IngressService:                 "istio-ingressgateway",
		IngressControllerMode:          meshv1alpha1.MeshConfig_STRICT,
		AccessLogEncoding:              meshv1alpha1.MeshConfig_TEXT,
		EnableAutoMtls:                 wrapperspb.Bool(true),
		EnableTracing:                  true,
		EnablePrometheusMerge:          wrapperspb.Bool(true),
		TrustDomain:                    "cluster.local",
		RootNamespace:                  "istio-system",
		DefaultServiceExportTo:         everywhere(),
		DefaultVirtualServiceExportTo:  everywhere(),
		DefaultDestinationRuleExportTo: everywhere(),
		LocalityLbSetting:              &networkingv1alpha3.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
		OutboundTrafficPolicy: &meshv1alpha1.MeshConfig_OutboundTrafficPolicy{
			Mode: meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY,
		},
		InboundTrafficPolicy: &meshv1alpha1.MeshConfig_InboundTrafficPolicy{Mode: meshv1alpha1.MeshConfig_InboundTrafficPolicy_PASSTHROUGH},
		ExtensionProviders:   defaultProviders(),
		DefaultConfig: &meshv1alpha1.ProxyConfig{
			ConfigPath:               "./etc/istio/proxy",
			BinaryPath:               "/usr/local/bin/envoy",
			ClusterName:              &meshv1alpha1.ProxyConfig_ServiceCluster{ServiceCluster: "istio-proxy"},
			DrainDuration:            durationpb.New(45 * time.Second),
			TerminationDrainDuration: durationpb.New(5 * time.Second),
			DiscoveryAddress:         "istiod.istio-system.svc:15012",
			ProxyAdminPort:           15000,
			StatusPort:               15020,
			StatNameLength:           189,
			ControlPlaneAuthPolicy:   meshv1alpha1.AuthenticationPolicy_MUTUAL_TLS,
		},
	}}
}

// FileLogProvider is the name of the provider of access logs that every mesh has.
const FileLogProvider = "envoy"

// defaultProviders returns the providers that every mesh has. A provider that the user defines under the same name
// replaces one.
func defaultProviders() []*meshv1alpha1.MeshConfig_ExtensionProvider {
	return []*meshv1alpha1.MeshConfig_ExtensionProvider{
		{Name: "prometheus", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Prometheus{
			Prometheus: &meshv1alpha1.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{},
		}},
		{Name: "stackdriver", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Stackdriver{
			Stackdriver: &meshv1alpha1.MeshConfig_ExtensionProvider_StackdriverProvider{},
		}},
		{Name: FileLogProvider, Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stdout"},
		}},
	}
}

// Changed returns the fields that differ from the defaults. A field that was cleared is not among them, nor are the
// providers that every mesh has.
func (c *Config) Changed() *meshv1alpha1.MeshConfig {
	d := Default()
	changed := changedFields(c.ProtoReflect(), d.ProtoReflect()).Interface().(*meshv1alpha1.MeshConfig)
	for n := len(changed.ExtensionProviders); n > 0; n-- {
		last := changed.ExtensionProviders[n-1]
		if !slices.ContainsFunc(d.ExtensionProviders, func(p *meshv1alpha1.MeshConfig_ExtensionProvider) bool { return proto.Equal(p, last) }) {
			break
		}
		changed.ExtensionProviders = changed.ExtensionProviders[:n-1]
	}
	return changed
}

func changedFields(m, d protoreflect.Message) protoreflect.Message {
	changed := m.New()
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Has(fd) && v.Equal(d.Get(fd)):
		case d.Has(fd) && fd.Message() != nil && !fd.IsList() && !fd.IsMap():
			changed.Set(fd, protoreflect.ValueOfMessage(changedFields(v.Message(), d.Get(fd).Message())))
		default:
			changed.Set(fd, v)
		}
		return true
	})
	return changed
}

// Equal reports whether both have the same content.
func (c *Config) Equal(o *Config) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Compliance == o.Compliance && proto.Equal(c.MeshConfig, o.MeshConfig)
}

// AutoMTLS reports whether sidecars use mutual TLS with servers that support it if no rule sets the TLS mode.
func (c *Config) AutoMTLS() bool { return c.GetEnableAutoMtls().GetValue() }

// AllowAny reports whether traffic to addresses without a service is allowed if no Sidecar decides it. Otherwise the
// policy is REGISTRY_ONLY.
func (c *Config) AllowAny() bool {
	return c.GetOutboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY
}

// InboundPassthrough reports whether inbound traffic goes to its original destination address; otherwise it goes to
// localhost.
func (c *Config) InboundPassthrough() bool {
	return c.GetInboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_InboundTrafficPolicy_PASSTHROUGH
}

// TrustDomains returns the trust domain and then its aliases.
func (c *Config) TrustDomains() []string {
	return append([]string{c.GetTrustDomain()}, c.GetTrustDomainAliases()...)
}

// AttemptCount reports whether requests carry x-envoy-attempt-count, unless the proxy's own configuration sets it.
func (c *Config) AttemptCount() bool {
	return !c.GetDefaultConfig().GetProxyHeaders().GetAttemptCount().GetDisabled().GetValue()
}

// NamespaceSelectors returns the discoverySelectors. If there are none, every namespace is selected.
func (c *Config) NamespaceSelectors() (list []labels.Selector) {
	for _, written := range c.GetDiscoverySelectors() {
		if selector, err := namespaceSelector(written); err == nil { // a parsed Config has no invalid selector
			list = append(list, selector)
		}
	}
	return list
}

func namespaceSelector(written *meshv1alpha1.LabelSelector) (labels.Selector, error) {
	m := metav1.LabelSelector{MatchLabels: written.GetMatchLabels()}
	for _, e := range written.GetMatchExpressions() {
		m.MatchExpressions = append(m.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.GetKey(), Operator: metav1.LabelSelectorOperator(e.GetOperator()), Values: e.GetValues(),
		})
	}
	return metav1.LabelSelectorAsSelector(&m)
}

// Provider returns the extension provider with a name, or nil if there is none.
func (c *Config) Provider(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range c.GetExtensionProviders() {
		if p.GetName() == name {
			return p
		}
	}
	return nil
}
