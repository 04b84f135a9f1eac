package injector

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// effective returns the configuration of a pod's proxy: the mesh's, what ProxyConfigs say of the pod over it, and the
// pod's annotation over both. The warnings say what of the annotation has no effect.
func (i *Injector) effective(m *mesh.Config, pod *corev1.Pod) (p proxyConfig, warnings []string, err error) {
	p = m.GetDefaultConfig()
	if p == nil {
		p = &meshv1alpha1.ProxyConfig{}
	}
	if i.o.ProxyConfig != nil {
		p = i.o.ProxyConfig(p, pod.Namespace, pod.Labels)
	}
	text, ok := pod.Annotations[configAnnotation]
	if !ok {
		return p, nil, nil
	}
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

// withoutDefaults returns the fields that differ from those of a mesh that sets nothing: agents know these.
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
