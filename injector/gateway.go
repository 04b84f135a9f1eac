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

// GatewayTemplate is the template that makes what Gateways need: whole objects, and not a part of a pod.
const GatewayTemplate = "kube-gateway"

// Gateway is what a template makes the objects of a Gateway of. All but the Gateway's own fields are an interface with
// those who write templates.
type Gateway struct {
	*gatewayv1.Gateway
	GatewayClass   string
	DeploymentName string // of the Service too
	ServiceAccount string
	Ports          []corev1.ServicePort
	ServiceType    corev1.ServiceType
	ClusterID      string
	KubeVersion    int // of the API server: 137 is 1.37

	InfrastructureLabels      map[string]string // that each object gets
	InfrastructureAnnotations map[string]string // likewise
	ControllerLabel           string            // of the controller that makes the objects
}

// gatewayData is what the template reads beside.
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

// mostObjects bounds what one template may make.
const mostObjects = 16

// Render returns the objects that a template makes for a Gateway, as JSON has them, in the order in which they are
// written.
func (i *Injector) Render(ctx context.Context, template string, g Gateway) ([]map[string]any, error) {
	c := i.config.Load()
	if c == nil {
		return nil, errors.New("there are no templates: the ConfigMap with them has not been read")
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
		ProxyUID: imageUser, ProxyGID: imageUser, CompliancePolicy: i.o.CompliancePolicy, GatewayNameLabel: names.LabelGateway,
		ProxyConfig: p, MeshConfig: m.MeshConfig, Values: runtime.DeepCopyJSON(c.values),
		ProxyImage: c.read.image(global.Proxy.Image, p.GetImage().GetImageType()), AgentgatewayImage: c.read.image("agentgateway", p.GetImage().GetImageType()),
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

// documents returns the objects of a text of YAML.
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
			continue // nothing but comments
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("what template %s writes is no object", template)
		}
		if err := checkLists("", m); err != nil {
			return nil, fmt.Errorf("what template %s writes: %w", template, err)
		}
		if list = append(list, m); len(list) > mostObjects {
			return nil, fmt.Errorf("template %s writes more than %d objects", template, mostObjects)
		}
	}
}
