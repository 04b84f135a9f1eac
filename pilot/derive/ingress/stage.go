package ingress

import (
	"cmp"
	"slices"
	"strings"

	ingressv1 "k8s.io/api/networking/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// controller is the name of this controller in an IngressClass.
const controller = names.IngressController

// Options configures the stage.
type Options struct {
	Domain    string // DNS domain of the cluster's services, such as cluster.local
	Namespace string // namespace of the derived Gateways, and of the Service that leads to the proxies
}

// stage caches the conversions of Ingresses between runs.
type stage struct {
	o         Options
	converted map[kinds.Key]*conversion
	hosts     map[string]*hostResult
}

// New returns the stage.
func New(o Options) derive.Stage {
	s := &stage{o: o}
	return derive.Whole("ingress", []*kinds.Kind{kinds.Ingress}, s.derive)
}

func (s *stage) derive(in derive.Objects) (d derive.Part) {
	var list []*kinds.Object
	for _, o := range in.List {
		ours, found := served(in, o)
		d.Findings = append(d.Findings, found...)
		if ours {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *kinds.Object) int { // in the order in which Gateways are sorted
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(gatewayName(a), gatewayName(b)), strings.Compare(a.Namespace, b.Namespace))
	})
	selector := proxySelector(in)
	before := s.converted
	s.converted = make(map[kinds.Key]*conversion, len(list))
	all := make([]*conversion, 0, len(list))
	for _, o := range list {
		c := before[o.Key]
		if c == nil || !c.isOf(o, selector, in.Get) {
			c = s.convert(o, selector, in.Get)
		}
		s.converted[o.Key] = c
		all = append(all, c)
		d.Objects = append(d.Objects, derive.Derived{Object: c.gateway, Origin: o.Key})
		d.Findings = append(d.Findings, c.findings...)
	}
	objects, found := s.mergeHosts(all)
	d.Objects, d.Findings = append(d.Objects, objects...), append(d.Findings, found...)
	if len(list) > 0 {
		value, found := s.addresses(in)
		d.Findings = append(d.Findings, found...)
		for _, o := range list {
			d.Statuses = append(d.Statuses, &derive.Status{Of: o.Key, Value: value, Current: currentStatus(o)})
		}
	}
	return d
}

func spec(o *kinds.Object) *ingressv1.IngressSpec { return &o.Spec.(*ingressv1.Ingress).Spec }

// served reports whether an Ingress belongs to the mesh: its annotation names the mesh's class, or its ingressClassName
// names an IngressClass of this controller. In mode DEFAULT an Ingress without a class also belongs to the mesh, and
// one whose class does not exist.
func served(in derive.Objects, o *kinds.Object) (ours bool, found []diag.Diagnostic) {
	mode := in.Mesh.GetIngressControllerMode()
	if mode == meshv1alpha1.MeshConfig_OFF {
		return false, nil
	}
	class := spec(o).IngressClassName
	if annotation, annotated := o.Annotations[kinds.AnnotationIngressClass]; annotated {
		ours = annotation == in.Mesh.GetIngressClass()
		if class != nil && *class != annotation {
			found = finding(o, diag.Warning, "IngressClass", "spec.ingressClassName", "remove the annotation",
				"it has no effect: the annotation "+kinds.AnnotationIngressClass+" names another class, "+annotation)
		}
		return ours, found
	}
	if class == nil {
		return mode == meshv1alpha1.MeshConfig_DEFAULT, nil
	}
	if c := in.Get(kinds.Key{Kind: kinds.IngressClass, Name: *class}); c != nil {
		return c.Spec.(*ingressv1.IngressClass).Spec.Controller == controller, nil
	}
	if mode == meshv1alpha1.MeshConfig_DEFAULT {
		return true, nil
	}
	return false, finding(o, diag.Warning, "IngressClass", "spec.ingressClassName",
		"add an IngressClass of that name with controller "+controller, "there is no IngressClass "+*class+": the Ingress is not served")
}

// defaultService is the ingressService of a mesh configuration that sets none, and defaultProxies the value of the
// label istio of the proxies behind it.
const (
	defaultService = "istio-ingressgateway"
	defaultProxies = "ingressgateway"
)

// proxySelector returns the label istio of the proxies that serve Ingresses: the ingressSelector, or else the name of
// the ingressService.
func proxySelector(in derive.Objects) string {
	service := in.Mesh.GetIngressService()
	if service == defaultService {
		service = ""
	}
	return cmp.Or(in.Mesh.GetIngressSelector(), service, defaultProxies)
}

// finding returns a finding about an object.
func finding(o *kinds.Object, severity diag.Severity, code, field, fix, message string) []diag.Diagnostic {
	return []diag.Diagnostic{diag.Diagnostic{Severity: severity, Code: code, Object: o.String(), Field: field, Message: message,
		Fix: fix}.At(o.Position)}
}
