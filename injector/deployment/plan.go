package deployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/injector"
)

// typeAnnotation is the annotation of a Gateway that sets the type of its Service.
const typeAnnotation = names.AnnotationServiceType

// statusPort is the port of a gateway's pods at which load balancers check its readiness.
const statusPort = 15021

// Deploys reports whether a revision of the control plane with some tags makes objects for a Gateway: the Gateway has
// one of the classes and belongs to the revision. A Gateway with a hostname address uses an existing Service. A Gateway
// with several addresses gets none, because a Service has only one.
func Deploys(o Options, g *kinds.Object, tags ...string) bool {
	if !o.classed(g) {
		return false
	}
	wanted := revision(g, o.World)
	if wanted != cmp.Or(o.Revision, "default") && !slices.Contains(tags, wanted) {
		return false
	}
	a := g.Spec.(*gatewayv1.Gateway).Spec.Addresses
	return len(a) == 0 || len(a) == 1 && (a[0].Type == nil || *a[0].Type == gatewayv1.IPAddressType)
}

// classed reports whether a Gateway has a class that is deployed.
func (o Options) classed(of *kinds.Object) bool {
	g, ok := of.Spec.(*gatewayv1.Gateway)
	if !ok || of.Cluster != "" {
		return false
	}
	name := string(g.Spec.GatewayClassName)
	if class := o.World.Object(kinds.Key{Kind: kinds.GatewayClass, Name: name}); class != nil {
		return string(class.Spec.(*gatewayv1.GatewayClass).Spec.ControllerName) == o.controller()
	}
	return slices.ContainsFunc(o.Classes, func(own Class) bool { return own.Name == name && own.Controller == o.controller() })
}

// labelsOf returns the labels of a namespace.
func labelsOf(w World, namespace string) map[string]string {
	if n := w.Object(kinds.Key{Kind: kinds.Namespace, Name: namespace}); n != nil {
		return n.Labels
	}
	return nil
}

// Needs are the inputs for the objects of a Gateway.
type Needs struct {
	Gateway      *kinds.Object
	ListenerSets []*kinds.Object // all ListenerSets
	World        World           // provides the namespaces
	Parameters   []Parameters    // each overrides the ones before it
	Cluster      string          // ID of the cluster
	Version      int             // minor version of the API server with its major: 137 for 1.37
	Templates    Templates
}

// Make returns the objects to write for a Gateway, in the order of the writes. An error names the wrong field of the
// Gateway, its parameters, or the template.
func Make(ctx context.Context, n Needs) ([]*unstructured.Unstructured, error) {
	g := input(n.Gateway, accepted(n.Gateway, n.ListenerSets, n.World))
	g.ClusterID, g.KubeVersion = n.Cluster, n.Version
	objects, err := n.Templates.Render(ctx, injector.GatewayTemplate, g)
	if err != nil {
		return nil, err
	}
	if objects, err = merge(objects, n.Parameters); err != nil {
		return nil, err
	}
	list := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		u, err := complete(o, g)
		if err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

// input returns the template's input for a Gateway with its accepted ListenerSets.
func input(o *kinds.Object, sets []*gatewayv1.ListenerSet) injector.Gateway {
	read := o.Spec.(*gatewayv1.Gateway)
	g := &gatewayv1.Gateway{TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway"},
		Spec: *read.Spec.DeepCopy()}
	g.Name, g.Namespace, g.UID, g.Labels, g.Annotations = o.Name, o.Namespace, types.UID(o.UID), o.Labels, o.Annotations
	class := string(g.Spec.GatewayClassName)
	name := names.GatewayDeployment(o.Name, class, o.Annotations)
	in := injector.Gateway{
		Gateway: g, GatewayClass: class, DeploymentName: name, ServiceAccount: names.GatewayAccount(o.Name, class, o.Annotations),
		Ports: ports(g, sets), ServiceType: corev1.ServiceType(cmp.Or(o.Annotations[typeAnnotation], string(corev1.ServiceTypeLoadBalancer))),
		InfrastructureLabels: map[string]string{}, InfrastructureAnnotations: map[string]string{}, ControllerLabel: managedValue(),
	}
	labels, annotations := o.Labels, o.Annotations
	if i := g.Spec.Infrastructure; i != nil {
		labels, annotations = plain(i.Labels), plain(i.Annotations)
	}
	for k, v := range labels {
		in.InfrastructureLabels[k] = v
	}
	for k, v := range annotations {
		in.InfrastructureAnnotations[k] = v
	}
	return in
}

// managedValue returns the value of the label of managed objects.
func managedValue() string { return strings.ReplaceAll(ControllerName, "/", "-") }

func plain[K, V ~string](m map[K]V) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[string(k)] = string(v)
	}
	return out
}

// ports returns the ports of the Service. If several listeners have a number, the first defines the port.
func ports(g *gatewayv1.Gateway, sets []*gatewayv1.ListenerSet) []corev1.ServicePort {
	tcp := "tcp"
	list := []corev1.ServicePort{{Name: "status-port", Port: statusPort, Protocol: corev1.ProtocolTCP, AppProtocol: &tcp}}
	add := func(name string, port int32, protocol gatewayv1.ProtocolType) {
		if slices.ContainsFunc(list, func(p corev1.ServicePort) bool { return p.Port == port }) {
			return
		}
		app := strings.ToLower(string(protocol))
		name = portName(name)
		if slices.ContainsFunc(list, func(p corev1.ServicePort) bool { return p.Name == name }) {
			name = portName(fmt.Sprintf("%s-%d", strings.ReplaceAll(app, "/", "-"), port))
		}
		list = append(list, corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP, AppProtocol: &app})
	}
	for _, l := range g.Spec.Listeners {
		add(string(l.Name), l.Port, l.Protocol)
	}
	for _, s := range sets {
		for _, l := range s.Spec.Listeners {
			add(string(l.Name), l.Port, l.Protocol)
		}
	}
	return list
}

// portName returns a valid name of a Service port for a listener's name.
func portName(name string) string {
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), validation.DNS1123LabelMaxLength)], "-")
}

// accepted returns the ListenerSets that a Gateway accepts, the oldest first.
func accepted(g *kinds.Object, all []*kinds.Object, w World) (list []*gatewayv1.ListenerSet) {
	var own []*kinds.Object
	for _, o := range all {
		if s, ok := o.Spec.(*gatewayv1.ListenerSet); ok && parent(o) == g.Key && allows(g, o.Namespace, w) && len(s.Spec.Listeners) > 0 {
			own = append(own, o)
		}
	}
	slices.SortFunc(own, func(a, b *kinds.Object) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range own {
		list = append(list, o.Spec.(*gatewayv1.ListenerSet))
	}
	return list
}

// parent returns the key of the Gateway that a ListenerSet belongs to. The key has no kind if the parent is not a
// Gateway.
func parent(o *kinds.Object) kinds.Key {
	s, ok := o.Spec.(*gatewayv1.ListenerSet)
	if !ok {
		return kinds.Key{}
	}
	p := s.Spec.ParentRef
	if p.Group != nil && *p.Group != gatewayv1.GroupName || p.Kind != nil && *p.Kind != "Gateway" {
		return kinds.Key{}
	}
	k := kinds.Key{Kind: kinds.KubeGateway, Namespace: o.Namespace, Name: string(p.Name)}
	if p.Namespace != nil {
		k.Namespace = string(*p.Namespace)
	}
	return k
}

// allows reports whether a Gateway accepts ListenerSets of a namespace.
func allows(g *kinds.Object, from string, w World) bool {
	a := g.Spec.(*gatewayv1.Gateway).Spec.AllowedListeners
	if a == nil || a.Namespaces == nil || a.Namespaces.From == nil {
		return false
	}
	switch *a.Namespaces.From {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return from == g.Namespace
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(a.Namespaces.Selector)
		return err == nil && s.Matches(labels.Set(labelsOf(w, from)))
	}
	return false
}

// revision returns the revision of the control plane, or the tag, that a Gateway belongs to.
func revision(o *kinds.Object, w World) string {
	return cmp.Or(o.Labels[names.LabelRevision], labelsOf(w, o.Namespace)[names.LabelRevision], "default")
}
