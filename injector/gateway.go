package injector

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kyaml "k8s.io/apimachinery/pkg/util/yaml"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// GatewayTemplate is the name of the template for Gateways. It makes whole objects instead of a part of a pod.
const GatewayTemplate = "kube-gateway"

// Gateway is the template's input for a Gateway. Its fields, except embedded ones, are a public interface,
// because users write templates.
type Gateway struct {
	*gatewayv1.Gateway
	GatewayClass   string
	DeploymentName string // name of the Deployment and the Service
	ServiceAccount string
	Ports          []corev1.ServicePort
	ServiceType    corev1.ServiceType
	ClusterID      string
	KubeVersion    int // API server's version, 137 for 1.37

	InfrastructureLabels      map[string]string // labels of each object
	InfrastructureAnnotations map[string]string // annotations of each object
	ControllerLabel           string            // value of the label for the controller that manages the objects
}

// gatewayData is the template's whole input.
type gatewayData struct {
	Gateway
	Revision           string
	NativeSidecars     bool
	ProxyUID, ProxyGID int64
	CompliancePolicy   string
	GatewayNameLabel   string
	IsEastWestGateway  bool
	ProxyImage         string
	AgentgatewayImage  string
	ProxyConfig        proxyConfig
	MeshConfig         *meshv1alpha1.MeshConfig
	Values             map[string]any
}

// maxObjects bounds the objects of one template.
const maxObjects = 16

// Render returns the objects that a template makes for a Gateway, in JSON form, in the order in which they are written.
func (i *Injector) Render(ctx context.Context, template string, g Gateway) ([]map[string]any, error) {
	c := i.config.Load()
	if c == nil {
		return nil, errors.New("there are no templates in force: the ConfigMap of the injector is missing, was not read yet, or has errors")
	}
	t := c.templates[template]
	if t == nil {
		return nil, fmt.Errorf("the injection ConfigMap has no template %s", template)
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Labels = g.Namespace, g.InfrastructureLabels
	m := i.o.World.Mesh()
	p, _, err := i.effective(m, pod)
	if err != nil {
		return nil, err
	}
	global := &c.read.Global
	d := &gatewayData{
		Gateway: g, Revision: nonEmpty(i.o.Revision, "default"), NativeSidecars: i.o.NativeSidecars != nil && i.o.NativeSidecars(),
		ProxyUID: imageUser, ProxyGID: imageUser, CompliancePolicy: string(m.Compliance), GatewayNameLabel: names.LabelGateway,
		ProxyConfig: p, MeshConfig: m.MeshConfig, Values: runtime.DeepCopyJSON(c.values),
		ProxyImage:        c.read.image(global.Proxy.Image, p.GetImage().GetImageType()),
		AgentgatewayImage: c.read.image("agentgateway", p.GetImage().GetImageType()),
	}
	d.ClusterID = nonEmpty(global.MultiCluster.ClusterName, d.ClusterID)
	ctx, cancel := context.WithTimeout(ctx, i.o.Time)
	defer cancel()
	text, err := execute(ctx, i.running, i.o.Logger, t, d)
	if err != nil {
		return nil, err
	}
	return documents(template, text)
}

// documents returns the objects in a YAML text.
func documents(template string, text []byte) (list []map[string]any, err error) {
	reader := kyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("what template %s writes: %w", template, err)
		}
		raw, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, fmt.Errorf("what template %s writes is no YAML: %w", template, err)
		}
		v, err := decode(raw)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue // only comments
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("what template %s writes is no object", template)
		}
		if err := checkLists("", m); err != nil {
			return nil, fmt.Errorf("what template %s writes: %w", template, err)
		}
		if list = append(list, m); len(list) > maxObjects {
			return nil, fmt.Errorf("template %s writes more than %d objects", template, maxObjects)
		}
	}
}
