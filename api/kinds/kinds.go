package kinds

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	ingressv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayxv1alpha1 "sigs.k8s.io/gateway-api/apisx/v1alpha1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	securityv1 "istio.io/api/security/v1"
	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Kind describes one resource kind of the Kubernetes API. Kinds are compared by pointer.
type Kind struct {
	Name     string   // as in YAML, such as VirtualService
	Group    string   // empty for the core group
	Versions []string // served versions, the preferred one first; all share one schema
	Plural   string   // as in URLs, such as virtualservices
	Cluster  bool     // cluster-scoped: objects have no namespace
	Istio    bool     // New returns the spec, a proto.Message; otherwise New returns the whole Kubernetes object
	Security bool     // a field that is unknown here is an error; a file's object with errors stops the first load
	New      func() any
}

// Object is one configuration object. It is immutable.
type Object struct {
	Key
	UID         string
	Generation  int64 // metadata.generation; 0 for core objects and if unknown
	Labels      map[string]string
	Annotations map[string]string
	Created     time.Time // zero if unknown: then objects are ordered by namespace and name
	Relayed     bool      // received from another control plane, which serves it too
	Partial     bool      // a field that its author wrote is left out, because it is unknown or has an error
	Position    string    // file:line:column; empty for objects of an API server

	// Spec is a pointer: the spec message for an Istio kind (*networkingv1.VirtualService …), the whole object for any
	// other (*corev1.Service …).
	Spec any

	Extra Extra // settings that a stage adds to the spec; nil for objects of sources
}

// Extra holds settings of a derived object that its spec has no field for. It is a *GatewayExtra, a *RouteExtra or a
// *RuleExtra, depending on the kind of the object.
type Extra interface{ extra() }

// GatewayExtra is the Extra of a Gateway.
type GatewayExtra struct {
	Workloads []WorkloadSelector // used instead of its selector; optional
}

// RouteExtra is the Extra of a VirtualService.
type RouteExtra struct {
	Segments       bool   // prefixes of paths match whole segments: /a matches /a and /a/b, and not /ab
	SchemePort     bool   // a redirect to another scheme without a port uses the scheme's well-known port
	MissingCluster uint32 // status of requests to a service that does not exist; 0 for Envoy's default, 503
}

// RuleExtra is the Extra of a DestinationRule that was derived from BackendTLSPolicies and XBackendTrafficPolicies. Its
// TLS settings replace the settings of other rules. Its retry budget is in force if no other rule has one.
type RuleExtra struct {
	// ClientCertificate is the credential that a Gateway's proxies show to backends, or empty. A rule with a
	// ClientCertificate is in force together with other rules, although it has a workload selector.
	ClientCertificate string
}

func (*GatewayExtra) extra() {}
func (*RouteExtra) extra()   {}
func (*RuleExtra) extra()    {}

// RouteExtra returns the Extra of a derived VirtualService.
func (o *Object) RouteExtra() RouteExtra {
	if e, ok := o.Extra.(*RouteExtra); ok {
		return *e
	}
	return RouteExtra{}
}

// SharedSecret is a secret that proxies may receive because an object names it for them.
type SharedSecret struct {
	Namespace string // namespace of the proxies; empty for all
	Account   string // their service account; empty for the accounts that may list the Secrets of their namespace
	Resource  string // name of the SDS resource
}

// WorkloadSelector selects workloads of one namespace.
type WorkloadSelector struct {
	Namespace string
	Labels    map[string]string // never empty
}

// Selects reports whether a selector of the list matches a workload with those labels.
func (e *GatewayExtra) Selects(namespace string, labels map[string]string) bool {
	for _, s := range e.Workloads {
		if s.Namespace == namespace && len(s.Labels) > 0 && Selects(s.Labels, labels) {
			return true
		}
	}
	return false
}

// GatewayNamespace returns the only namespace in which a Gateway selects workloads, or "" if it selects them in all
// namespaces. scoped is true if Gateways are limited to their own namespaces. A derived Gateway with Workloads names
// the namespaces of its workloads itself.
func GatewayNamespace(o *Object, scoped bool) string {
	if e, ok := o.Extra.(*GatewayExtra); !scoped || ok && e.Workloads != nil {
		return ""
	}
	return o.Namespace
}

// GatewayReaches reports whether a Gateway may select workloads of a namespace, see GatewayNamespace.
func GatewayReaches(o *Object, namespace string, scoped bool) bool {
	only := GatewayNamespace(o, scoped)
	return only == "" || only == namespace
}

// AnnotationDryRun with the value "true" makes an AuthorizationPolicy refuse nothing.
const AnnotationDryRun = names.AnnotationDryRun

// AnnotationIgnorePolicy with the value "true" marks a BackendTLSPolicy or an XBackendTrafficPolicy for other
// controllers.
const AnnotationIgnorePolicy = names.AnnotationIgnorePolicy

// AnnotationRouteSemantics is set on a VirtualService whose paths have the semantics of another API. With the value
// RoutesOfIngress a prefix matches whole segments: /a matches /a and /a/b, and not /ab.
const (
	AnnotationRouteSemantics = names.AnnotationRouteSemantics
	RoutesOfIngress          = "ingress"
)

// AnnotationIngressClass names the class of an Ingress, as spec.ingressClassName does.
const AnnotationIngressClass = names.AnnotationIngressClass

// AnnotationHealthy has the condition Healthy in the status of a WorkloadEntry, "true" or "false", because objects have
// no status here.
const AnnotationHealthy = names.AnnotationHealthy

// AnnotationAddresses has the addresses in the status of a ServiceEntry, which another control plane assigned: a line
// "host address" for each, with an empty host if the address is for all of the entry's hosts.
const AnnotationAddresses = names.AnnotationAddresses

// AnnotationSuppress lists the codes of findings to suppress for an object, separated by commas, or * for all.
const AnnotationSuppress = names.AnnotationSuppress

// Key names one object.
type Key struct {
	Kind      *Kind
	Namespace string // empty for cluster-scoped kinds
	Name      string
	Cluster   string // ID of the remote cluster that has it; empty for the server's own cluster and for files
}

// LastGood is the suffix of the name of a last good version that is in force together with the next version of its
// object. No object of an API server or of a file can have such a name.
const LastGood = "@last-good"

// IsLastGood reports whether the object is the last good version of an object whose current version has an error. Such
// an object exists in no source.
func (k Key) IsLastGood() bool { return strings.HasSuffix(k.Name, LastGood) }

// String returns the object's kind and name, such as "VirtualService a/web". It also names a remote cluster, and marks
// a last good version.
func (k Key) String() string {
	name := k.Kind.Name + " "
	if k.Namespace != "" {
		name += k.Namespace + "/"
	}
	name += strings.TrimSuffix(k.Name, LastGood)
	if k.Cluster != "" {
		name += " of cluster " + k.Cluster
	}
	if k.IsLastGood() {
		name += " (last good version)"
	}
	return name
}

// Change is one created, updated or deleted object of any source, after validation.
type Change struct {
	Key
	Object *Object // nil if the object was deleted
}

// Path is the path that Istio writes into Envoy's metadata: the object's URL path in the Kubernetes API with the kind
// in the singular, such as /apis/networking.istio.io/v1/namespaces/<ns>/virtual-service/<name>.
func (k Key) Path() string {
	return "/apis/" + k.Kind.Group + "/" + k.Kind.Versions[0] + "/namespaces/" + k.Namespace + "/" + kebab(k.Kind.Name) + "/" + k.Name
}

func kebab(s string) string {
	b := make([]byte, 0, len(s)+4)
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b = append(b, '-')
			}
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return string(b)
}

// empty returns a pointer to an empty object.
func empty[T any]() any { return new(T) }

func istio(name, group, plural string, newSpec func() any, versions ...string) *Kind {
	return &Kind{Name: name, Group: group, Versions: versions, Plural: plural, Istio: true, New: newSpec}
}

func networking(name, plural string, newSpec func() any) *Kind {
	return istio(name, "networking.istio.io", plural, newSpec, "v1", "v1beta1", "v1alpha3")
}

func security(name, plural string, newSpec func() any) *Kind {
	k := istio(name, "security.istio.io", plural, newSpec, "v1", "v1beta1")
	k.Security = true
	return k
}

// kubernetes is a kind of Kubernetes itself.
func kubernetes(name, group, plural string, newObject func() any) *Kind {
	return &Kind{Name: name, Group: group, Versions: []string{"v1"}, Plural: plural, New: newObject}
}

func gateway(name, plural string, newObject func() any, versions ...string) *Kind {
	return &Kind{Name: name, Group: "gateway.networking.k8s.io", Versions: versions, Plural: plural, New: newObject}
}

// multicluster is a kind of the Multi-Cluster Services API. Both versions of the API have one schema.
func multicluster(name, plural string, newObject func() any) *Kind {
	return &Kind{Name: name, Group: mcsv1alpha1.GroupName, Versions: []string{"v1alpha1", "v1beta1"}, Plural: plural, New: newObject}
}

// The kinds. Every list of kinds in the project is made from All.
var (
	DestinationRule = networking("DestinationRule", "destinationrules", empty[networkingv1.DestinationRule])
	Gateway         = networking("Gateway", "gateways", empty[networkingv1.Gateway])
	ServiceEntry    = networking("ServiceEntry", "serviceentries", empty[networkingv1.ServiceEntry])
	Sidecar         = networking("Sidecar", "sidecars", empty[networkingv1.Sidecar])
	VirtualService  = networking("VirtualService", "virtualservices", empty[networkingv1.VirtualService])
	WorkloadEntry   = networking("WorkloadEntry", "workloadentries", empty[networkingv1.WorkloadEntry])
	WorkloadGroup   = networking("WorkloadGroup", "workloadgroups", empty[networkingv1.WorkloadGroup])
	EnvoyFilter     = istio("EnvoyFilter", "networking.istio.io", "envoyfilters", empty[networkingv1alpha3.EnvoyFilter], "v1alpha3")
	ProxyConfig     = istio("ProxyConfig", "networking.istio.io", "proxyconfigs", empty[networkingv1beta1.ProxyConfig], "v1beta1")

	AuthorizationPolicy   = security("AuthorizationPolicy", "authorizationpolicies", empty[securityv1.AuthorizationPolicy])
	PeerAuthentication    = security("PeerAuthentication", "peerauthentications", empty[securityv1.PeerAuthentication])
	RequestAuthentication = security("RequestAuthentication", "requestauthentications", empty[securityv1.RequestAuthentication])

	Telemetry        = istio("Telemetry", "telemetry.istio.io", "telemetries", empty[telemetryv1.Telemetry], "v1", "v1alpha1")
	TrafficExtension = istio("TrafficExtension", "extensions.istio.io", "trafficextensions",
		empty[extensionsv1alpha1.TrafficExtension], "v1alpha1")
	WasmPlugin = istio("WasmPlugin", "extensions.istio.io", "wasmplugins", empty[extensionsv1alpha1.WasmPlugin], "v1alpha1")

	GatewayClass     = clusterScoped(gateway("GatewayClass", "gatewayclasses", empty[gatewayv1.GatewayClass], "v1", "v1beta1"))
	KubeGateway      = gateway("Gateway", "gateways", empty[gatewayv1.Gateway], "v1", "v1beta1")
	ListenerSet      = gateway("ListenerSet", "listenersets", empty[gatewayv1.ListenerSet], "v1")
	HTTPRoute        = gateway("HTTPRoute", "httproutes", empty[gatewayv1.HTTPRoute], "v1", "v1beta1")
	GRPCRoute        = gateway("GRPCRoute", "grpcroutes", empty[gatewayv1.GRPCRoute], "v1")
	TLSRoute         = gateway("TLSRoute", "tlsroutes", empty[gatewayv1.TLSRoute], "v1", "v1alpha3", "v1alpha2")
	TCPRoute         = gateway("TCPRoute", "tcproutes", empty[gatewayv1.TCPRoute], "v1", "v1alpha2")
	UDPRoute         = gateway("UDPRoute", "udproutes", empty[gatewayv1.UDPRoute], "v1", "v1alpha2")
	ReferenceGrant   = gateway("ReferenceGrant", "referencegrants", empty[gatewayv1.ReferenceGrant], "v1", "v1beta1")
	BackendTLSPolicy = gateway("BackendTLSPolicy", "backendtlspolicies", empty[gatewayv1.BackendTLSPolicy], "v1", "v1alpha3")

	XBackendTrafficPolicy = &Kind{Name: "XBackendTrafficPolicy", Group: gatewayxv1alpha1.GroupName, Versions: []string{"v1alpha1"},
		Plural: "xbackendtrafficpolicies", New: empty[gatewayxv1alpha1.XBackendTrafficPolicy]}

	ServiceExport = multicluster("ServiceExport", "serviceexports", empty[mcsv1alpha1.ServiceExport])
	ServiceImport = multicluster("ServiceImport", "serviceimports", empty[mcsv1alpha1.ServiceImport])

	Ingress      = kubernetes("Ingress", "networking.k8s.io", "ingresses", empty[ingressv1.Ingress])
	IngressClass = clusterScoped(kubernetes("IngressClass", "networking.k8s.io", "ingressclasses", empty[ingressv1.IngressClass]))

	Service       = kubernetes("Service", "", "services", empty[corev1.Service])
	EndpointSlice = kubernetes("EndpointSlice", "discovery.k8s.io", "endpointslices", empty[discoveryv1.EndpointSlice])
	Pod           = kubernetes("Pod", "", "pods", empty[corev1.Pod])
	Node          = clusterScoped(kubernetes("Node", "", "nodes", empty[corev1.Node]))
	Namespace     = clusterScoped(kubernetes("Namespace", "", "namespaces", empty[corev1.Namespace]))
	Secret        = kubernetes("Secret", "", "secrets", empty[corev1.Secret])
	ConfigMap     = kubernetes("ConfigMap", "", "configmaps", empty[corev1.ConfigMap])
)

// HostAddresses is the resolution of a host name: the Object is named by the host, and its Spec is a *[]string. The
// server makes these objects itself: no source has one, and All does not include the kind.
var HostAddresses = &Kind{Name: "HostAddresses"}

// JWKS is the public keys of a token issuer: the Object is named by the jwks.Remote that the keys are fetched from, and
// its Spec is a *string, a JSON Web Key Set. The server makes these objects itself.
var JWKS = &Kind{Name: "JWKS"}

// Roots has no Objects. A Change of it means that the roots which proxies trust may have changed. The server makes
// these Changes itself.
var Roots = &Kind{Name: "Roots"}

// ServicePort is the fact that a service of the mesh has a port: the Object is named host:port, and its Spec is a
// *bool. Package snapshot makes these objects from the registries' services.
var ServicePort = &Kind{Name: "ServicePort"}

// The TLS content of a Secret or a ConfigMap: the Object has the same name, and its Spec is a *credentials.Credential.
// The server makes these objects itself: no source has one, and All does not include the kinds.
var (
	SecretCredential    = &Kind{Name: "SecretCredential"}
	ConfigMapCredential = &Kind{Name: "ConfigMapCredential"}
)

func clusterScoped(k *Kind) *Kind {
	k.Cluster = true
	return k
}

// All returns every kind, in the order in which sources should load them: a kind that other kinds refer to comes before
// them.
func All() []*Kind {
	return []*Kind{
		Namespace, Node, ConfigMap, Secret, Pod, Service, EndpointSlice,
		ServiceExport, ServiceImport,
		WorkloadEntry, WorkloadGroup, ServiceEntry, Sidecar, DestinationRule, Gateway, VirtualService, EnvoyFilter, ProxyConfig,
		PeerAuthentication, AuthorizationPolicy, RequestAuthentication, Telemetry, WasmPlugin, TrafficExtension,
		IngressClass, Ingress,
		GatewayClass, ReferenceGrant, KubeGateway, ListenerSet, HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, UDPRoute, BackendTLSPolicy,
		XBackendTrafficPolicy,
	}
}

// IsMultiCluster reports whether a kind belongs to the Multi-Cluster Services API, which is read only if it is enabled.
func (k *Kind) IsMultiCluster() bool { return k == ServiceExport || k == ServiceImport }

// IsGatewayAPI reports whether a kind belongs to the Gateway API.
func (k *Kind) IsGatewayAPI() bool { return k.Group == KubeGateway.Group || k.IsAlpha() }

// IsAlpha reports whether a kind belongs to the alpha parts of the Gateway API, which are read only if the server is
// told to.
func (k *Kind) IsAlpha() bool { return k == XBackendTrafficPolicy }

// IsWorkload reports whether controllers write the objects of a kind, and do so all the time.
func (k *Kind) IsWorkload() bool { return k == Pod || k == EndpointSlice || k == Node }

// IsOptional reports whether a kind is read only if a setting enables it.
func (k *Kind) IsOptional() bool { return k.IsMultiCluster() || k.IsAlpha() }

// Find returns the kind of an apiVersion ("v1", "networking.istio.io/v1") and kind, or nil.
func Find(apiVersion, kind string) *Kind {
	for _, k := range All() {
		if k.Name != kind {
			continue
		}
		for _, v := range k.Versions {
			if k.APIVersion(v) == apiVersion {
				return k
			}
		}
	}
	return nil
}

// Named returns the kind of a group and a name, or nil.
func Named(group, name string) *Kind {
	for _, k := range All() {
		if k.Group == group && k.Name == name {
			return k
		}
	}
	return nil
}

// APIVersion returns the apiVersion of version v in a YAML document.
func (k *Kind) APIVersion(v string) string {
	if k.Group == "" {
		return v
	}
	return k.Group + "/" + v
}

// Selects reports whether a selector matches labels. An empty selector matches everything.
func Selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
