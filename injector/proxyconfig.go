package injector

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// effective returns the configuration of a pod's proxy. It merges, in order of increasing precedence, the mesh's
// default, ProxyConfigs without a selector, the pod's annotation, and the ProxyConfig that selects the pod. The
// warnings name parts of the annotation without effect.
func (i *Injector) effective(m *mesh.Config, pod *corev1.Pod) (p proxyConfig, warnings []string, err error) {
	p = m.GetDefaultConfig()
	if p == nil {
		p = &meshv1alpha1.ProxyConfig{}
	}
	whole, selecting := i.o.World.ProxyConfigs(pod.Namespace, pod.Labels)
	p = with(p, whole...)
	if text, ok := pod.Annotations[configAnnotation]; ok {
		if p, warnings, err = annotated(p, text); err != nil {
			return nil, nil, err
		}
	}
	if selecting != nil {
		p = with(p, selecting)
	}
	return p, warnings, nil
}

// annotated returns a configuration with an annotation merged over it.
func annotated(p proxyConfig, text string) (over proxyConfig, warnings []string, err error) {
	over, findings := mesh.SalvageProxyConfig(p, []byte(text))
	for _, f := range findings {
		said := f.String()
		if f.Line > 0 {
			said = fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, said)
		}
		if f.Severity == diag.Error {
			return nil, nil, badAnnotation(configAnnotation, text, errors.New(said))
		}
		warnings = append(warnings, "annotation "+configAnnotation+": "+said)
	}
	if p := over.GetStatusPort(); p < 1 || p > 65535 {
		return nil, nil, badAnnotation(configAnnotation, text, fmt.Errorf("statusPort: %d is no port: write a number from 1 to 65535", p))
	}
	return over, warnings, nil
}

// with returns a configuration with ProxyConfigs merged over it. Later ones take precedence.
func with(p proxyConfig, list ...*networkingv1beta1.ProxyConfig) proxyConfig {
	if len(list) == 0 {
		return p
	}
	p = proto.CloneOf(p)
	for _, over := range list {
		if over.GetConcurrency() != nil {
			p.Concurrency = over.GetConcurrency()
		}
		if over.GetImage() != nil {
			p.Image = over.GetImage()
		}
		for name, value := range over.GetEnvironmentVariables() {
			lists.Put(&p.ProxyMetadata, name, value)
		}
	}
	return p
}

// withoutDefaults returns the fields that differ from Istio's defaults, which agents know.
func withoutDefaults(p proxyConfig) proxyConfig {
	out := proto.CloneOf(p)
	d := mesh.Default().GetDefaultConfig().ProtoReflect()
	m := out.ProtoReflect()
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if d.Has(f) && v.Equal(d.Get(f)) {
			m.Clear(f)
		}
		return true
	})
	return out
}
